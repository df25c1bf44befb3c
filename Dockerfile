# Outrider in a container: not root, one volume for its data. docs/operations.md says how to reach it, and how its first
# token is made.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
COPY background background
COPY knowledge knowledge
COPY web web
# Its own pages, which it takes in at the first start: web/docs leads here.
COPY docs docs
# EXTRAS names the model providers to install, e.g. --build-arg EXTRAS=openai,anthropic
ARG EXTRAS=openai
RUN python -m venv /opt/outrider && /opt/outrider/bin/pip install --no-cache-dir ".[${EXTRAS}]"

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin outrider \
    && install --directory --owner outrider --mode 0700 /data
COPY --from=build /opt/outrider /opt/outrider
USER outrider
ENV PATH=/opt/outrider/bin:$PATH \
    OUTRIDER_DATA=/data \
    PYTHONUNBUFFERED=1
VOLUME /data
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('OUTRIDER_PORT', 8420)}/readyz\", timeout=4)"]
ENTRYPOINT ["outrider"]
CMD ["serve"]
