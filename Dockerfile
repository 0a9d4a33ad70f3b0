# The image of a release, for `consume`, `dashboard`, `exporter` and all other commands: make dist && docker build -t delayq .
# docs/deploying.md says how to add handlers.
FROM python:3.13-slim
COPY build/dist/*.whl /tmp/
RUN set -- /tmp/*.whl && pip install --no-cache-dir "$1[dashboard,lake,metrics,otel]" && rm "$1"
RUN useradd --system --uid 10001 --create-home app
COPY --chmod=555 examples/deploy/healthcheck.py /usr/local/bin/delayq-healthcheck
WORKDIR /app
USER 10001
# Without DELAYQ_URL, messages would be stored on the container's disk and lost with it.
ENV DELAYQ_REQUIRE_URL=1 PYTHONUNBUFFERED=1 DELAYQ_LOG_FORMAT=json DELAYQ_METRICS_PORT=8702 DELAYQ_METRICS_HOST=0.0.0.0
EXPOSE 8700 8701 8702
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["delayq-healthcheck"]
# As process 1, delayq is its own init: it passes signals on, and reaps what programs of --exec leave behind.
ENTRYPOINT ["delayq"]
CMD ["--help"]
