# Topicwright with what its replays need; every service of docker-compose.yml runs this image.
FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt ./
RUN sed '/^# run$/,$d' constraints.txt | pip install --no-cache-dir --require-hashes -r /dev/stdin \
    && sed '/^# dev$/,$d' constraints.txt | pip install --no-cache-dir --require-hashes --no-build-isolation -r /dev/stdin
COPY pyproject.toml README.md ./
COPY controller controller
COPY events events
COPY projections projections
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
RUN useradd --create-home topicwright && install --directory --owner topicwright /data
USER topicwright
WORKDIR /home/topicwright
ENTRYPOINT ["topicwright"]
