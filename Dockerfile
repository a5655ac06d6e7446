# The processes of workers/, on a plain Python. One image for all: the command chooses.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml LICENSE README.md ./
COPY timerq ./timerq
RUN python -m venv /opt/timerq && /opt/timerq/bin/pip install --no-cache-dir .

FROM python:3.13-slim
RUN useradd --system --no-create-home timerq
WORKDIR /app
COPY --from=build /opt/timerq /opt/timerq
COPY workers ./workers
ENV PATH=/opt/timerq/bin:$PATH PYTHONUNBUFFERED=1
USER timerq
CMD ["python", "-m", "workers.dispatch"]
