"""`prbench eval-planner`: how well does a planner predict what users look for?"""

from collections.abc import Mapping

import typer

from prbench.cli import options
from prbench.insight.planner_evaluation import PLANNED, PlannerSettings, measure_planner
from prbench.metrics.number_format import PERCENT
from prbench.schema import Json


def eval_planner(
    planner: options.Planner,
    out: options.Out,
    data: options.DataOptions,
    posts: options.PostOptions,
    judge: options.Judge = "",
    max_failed: options.MaxFailed = 0.5,
    seed: options.Seed = 0,
    fresh: options.Fresh = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Compare planned aspects with the rubrics: precision and recall, with intervals over users.

    The same command again asks nothing twice. With a run's folder as --out, the figures stand in its report. The lab
    can do without a judge.

    Example: `prbench eval-planner --planner local:smollm2 --data lab --limit 50 --out plans`
    """
    settings = PlannerSettings(planner=planner, judge=judge, **vars(posts), seed=seed)
    which = data.which()
    with options.progress_bar("plans", quiet=json) as progress:
        summary = measure_planner(settings, which, out, fresh=fresh, command=options.command_line(), progress=progress)
    if json:
        options.print_json(summary)
    else:
        show = options.out_console.print
        show(f"{summary['examples']} examples of {summary['users']} users; with a plan: {_share(summary['planned'])}")
        for reason, count in summary["no_plan"].items():
            show(f"  no plan: {count} {reason.replace('_', ' ')}", style="yellow")
        if summary["failed"]:
            show(
                f"  {summary['failed']} examples broke because of failed requests, and count for nothing",
                style="yellow",
            )
        if summary["aspects_per_plan"] is not None:
            show(f"  {summary['aspects_per_plan']} aspects per plan, {summary['aspects_wanted']} are wanted")
        for name, title in (("judge", "by the judge"), ("lab", "by the lab's truth")):
            figures = summary[name]
            if figures is None:
                continue
            show(f"{title}: precision {_share(figures['precision'])}, recall {_share(figures['recall'])}")
            for reason, count in figures["unreadable"].items():
                show(f"  unreadable: {count} {reason.replace('_', ' ')}", style="yellow")
        if summary["lab"] is not None and summary["lab"]["precision_by_chance"] is not None:
            show(f"  by chance: precision {100 * summary['lab']['precision_by_chance']:.1f} %")
        options.out_console.print(f"written to {out / PLANNED}", soft_wrap=True)
    if summary["failed"] > max_failed * summary["examples"]:
        raise typer.Exit(1)


def _share(estimate: Mapping[str, Json] | None) -> str:
    if estimate is None:
        return "none"
    return f"{PERCENT.value(estimate)} % {PERCENT.interval(estimate['low'], estimate['high'])}"
