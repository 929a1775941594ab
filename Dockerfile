# Two images: `base` runs serve, join, workers, gateways and the CLI; `spark` adds Java and Spark for replays.
#
#   docker build --target base -t topicwright:0.1.0 .
#   docker build --target spark -t topicwright-spark:0.1.0 .
#
# A release passes PYTHON with a digest (python:3.11-slim-bookworm@sha256:…), and REVISION.
ARG PYTHON=python:3.11-slim-bookworm
FROM ${PYTHON} AS build
WORKDIR /src
COPY constraints.txt ./
RUN python -m venv /opt/topicwright
ENV PATH=/opt/topicwright/bin:$PATH
RUN sed '/^# run$/,$d' constraints.txt | pip install --no-cache-dir --require-hashes -r /dev/stdin \
    && sed '/^# report$/,$d' constraints.txt | pip install --no-cache-dir --require-hashes --no-build-isolation -r /dev/stdin
COPY pyproject.toml setup.py README.md LICENSE ./
COPY controller controller
COPY events events
COPY projections projections
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

FROM build AS build-spark
RUN sed '/^# dev$/,$d' constraints.txt | pip install --no-cache-dir --require-hashes --no-build-isolation -r /dev/stdin

FROM ${PYTHON} AS base
ARG REVISION=""
LABEL org.opencontainers.image.title="Topicwright" \
      org.opencontainers.image.description="A Kafka controller you can replay" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
RUN useradd --uid 1000 --create-home topicwright && install --directory --mode 700 --owner topicwright /data /spark
COPY --from=build /opt/topicwright /opt/topicwright
# TOPICWRIGHT_HTTP is also where the health check finds the process; set it if `--http` has another port.
ENV PATH=/opt/topicwright/bin:$PATH PYTHONDONTWRITEBYTECODE=1 TOPICWRIGHT_HTTP=127.0.0.1:8080
USER 1000:1000
WORKDIR /data
VOLUME /data
EXPOSE 9092 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=6 CMD ["python", "-c", \
    "import os, urllib.request as http; http.urlopen(f\"http://{os.environ['TOPICWRIGHT_HTTP']}/health/live\", timeout=4)"]
ENTRYPOINT ["topicwright"]

FROM base AS spark
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-spark /opt/topicwright /opt/topicwright
USER 1000:1000
HEALTHCHECK NONE
