# `bibs serve` in a container: docker build -t bibs . && docker run --rm -p 8017:8017 bibs
# A model of your own: docker run --rm -p 8017:8017 -v /path/to/model:/model:ro bibs bibs serve --host 0.0.0.0 --model /model
FROM debian:bookworm-slim

RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends ca-certificates python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY LICENSE README.md pyproject.toml ./
COPY src src

# Where pip finds a torch without CUDA, the image is several GB smaller:
# docker build --build-arg PIP_EXTRA_INDEX_URL=(an index of CPU builds) -t bibs .
ARG PIP_EXTRA_INDEX_URL

# The bundled model is in the package, so the container needs no network once it is built.
RUN python3 -m venv /opt/bibs \
    && /opt/bibs/bin/pip install --no-cache-dir --disable-pip-version-check ".[serve,vision]" \
    && rm -rf /src/*

RUN useradd --uid 10001 --create-home bibs
USER bibs
WORKDIR /home/bibs
ENV PATH=/opt/bibs/bin:/usr/local/bin:/usr/bin:/bin
ENV OMP_WAIT_POLICY=PASSIVE

EXPOSE 8017
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:8017/readyz', timeout=4)"
CMD ["bibs", "serve", "--host", "0.0.0.0"]
