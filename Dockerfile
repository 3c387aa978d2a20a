# A broker in a container: `docker build -t barnabas .`; with Spark for queries and streams: `--target spark`.
# docs/install.md says how to run it.

FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY lock lock
RUN python -m venv /opt/barnabas && /opt/barnabas/bin/pip install --no-cache-dir --require-hashes -r lock/server.txt
COPY pyproject.toml MANIFEST.in LICENSE README.md ./
COPY barnabas barnabas
COPY broker broker
COPY client client
COPY connect connect
COPY groupcoord groupcoord
COPY scripts scripts
COPY storage storage
COPY streams streams
COPY testing testing
COPY wire wire
# pip leaves out a codec that could not be compiled, because slower ones in Python replace it. Here that is an error.
RUN /opt/barnabas/bin/pip install --no-cache-dir --no-deps . \
    && cd /opt/barnabas/lib/python3*/site-packages \
    && for source in $(grep -o 'barnabas/[a-z_/]*[.]c' /src/pyproject.toml); do ls "${source%.c}".*.so || exit 1; done

FROM python:3.12-slim AS base
# The data directory is made here, not by useradd, which would put the files of /etc/skel into it.
RUN groupadd --gid 10092 barnabas \
    && useradd --uid 10092 --gid 10092 --no-create-home --home-dir /var/lib/barnabas --shell /usr/sbin/nologin barnabas \
    && install --directory --owner 10092 --group 10092 --mode 0700 /var/lib/barnabas
ENV PATH=/opt/barnabas/bin:$PATH PYTHONUNBUFFERED=1
VOLUME /var/lib/barnabas
EXPOSE 9092 9644
# SIGTERM is a clean stop. The process gets it itself, as no shell stands between.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9644/readyz', timeout=4)"]
ENTRYPOINT ["barnabas", "serve", "--data-dir", "/var/lib/barnabas", "--override", "barnabas.http.listen=127.0.0.1:9644"]
CMD ["--override", "listeners=PLAINTEXT://0.0.0.0:9092", "--override", "advertised.listeners=PLAINTEXT://localhost:9092"]

# Queries and streams: Java, and Spark for Python.
FROM base AS spark
RUN apt-get update && apt-get install -y --no-install-recommends default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/barnabas /opt/barnabas
COPY lock/spark.txt /tmp/spark.txt
RUN pip install --no-cache-dir --require-hashes -r /tmp/spark.txt && rm /tmp/spark.txt \
    && python -m barnabas.streams.archive
USER barnabas

# The plain broker, which is what `docker build` makes.
FROM base AS broker
COPY --from=build /opt/barnabas /opt/barnabas
USER barnabas
