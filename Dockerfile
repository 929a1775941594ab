# Topicwright with what its replays need; every service of docker-compose.yml runs this image.
ARG PYTHON=python:3.11-slim-bookworm
FROM ${PYTHON}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt ./
RUN sed '/^# run$/,$d' constraints.txt | pip install --no-cache-dir --require-hashes -r /dev/stdin \
    && sed '/^# dev$/,$d' constraints.txt | pip install --no-cache-dir --require-hashes --no-build-isolation -r /dev/stdin
COPY pyproject.toml setup.py README.md LICENSE ./
COPY controller controller
COPY events events
COPY projections projections
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
RUN useradd --create-home topicwright && install --directory --mode 700 --owner topicwright /data /spark
USER topicwright
WORKDIR /home/topicwright
ENTRYPOINT ["topicwright"]
