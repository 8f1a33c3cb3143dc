# Two servers in one image: the reward server, and the app in which people check pairs.
#
#   docker build --tag prbench .
#   docker run --publish 8000:8000 --env PRBENCH_SERVER_TOKEN=… --volume ./models:/models prbench \
#       serve --model classifier:/models/mine --host 0.0.0.0
#   docker run --publish 8000:8000 --volume ./study:/data prbench annotate serve /data/study.db --host 0.0.0.0
#
# CPU build of PyTorch; for a GPU build with --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130.
FROM python:3.12-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/prbench \
 && /opt/prbench/bin/pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" --constraint constraints.txt '.[hf,llm,serve]'

FROM python:3.12-slim
RUN useradd --create-home prbench && mkdir /data && chown prbench /data
COPY --from=build /opt/prbench /opt/prbench
ENV PATH=/opt/prbench/bin:$PATH PYTHONUNBUFFERED=1
USER prbench
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["prbench"]
CMD ["--help"]
