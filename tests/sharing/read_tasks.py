"""Read files of ours by the models of those who read them: `eval FOLDER` by inspect_ai, `results FILE` by mteb."""

import importlib.util
import json
import sys
from pathlib import Path

import yaml


def tasks(folder: str) -> list[str]:
    """The ids of the tasks that inspect_ai takes."""
    from inspect_ai._eval.task.hf import HFTask

    found = yaml.safe_load((Path(folder) / "eval.yaml").read_text())["tasks"]
    return [str(HFTask.model_validate(each).id) for each in found]


def results(file: str) -> list[float]:
    """The values that mteb's model of `.eval_results` takes; its module is read alone, without the package."""
    (path,) = (
        Path(root) / "mteb/_hf_integration/eval_result_model.py" for root in sys.path if "site-packages" in root
    )
    spec = importlib.util.spec_from_file_location("eval_result_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found = module.HFEvalResults.model_validate(yaml.safe_load(Path(file).read_text()))
    return [each.value for each in found.root]


if __name__ == "__main__":
    name, where = sys.argv[1:]
    print(json.dumps({"eval": tasks, "results": results}[name](where)))
