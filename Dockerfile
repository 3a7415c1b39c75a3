# docker build -t chainrule .                                CPU
# docker build -t chainrule --build-arg TORCH_INDEX= .       CUDA: PyTorch as the default package index has it
# docker run --rm -p 8000:8000 chainrule                     prints the link to open

FROM python:3.12-slim AS build

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src

# A compiler for the statistics kernel; it stays in this stage.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

# The dependencies before the source: they change less often, and PyTorch's layer is the large one.
COPY constraints.txt pyproject.toml ./
RUN python -m venv /opt/chainrule \
    && python -c "import tomllib; print('\n'.join(tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies']))" > requirements.txt \
    && /opt/chainrule/bin/pip install -c constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r requirements.txt

COPY README.md LICENSE hatch_build.py ./
COPY app app
COPY static static
COPY templates templates
RUN python -m pip wheel --no-deps --wheel-dir dist . \
    && /opt/chainrule/bin/pip install --no-deps dist/*.whl \
    && /opt/chainrule/bin/pip uninstall --yes pip


FROM python:3.12-slim

LABEL org.opencontainers.image.title="Chainrule" \
      org.opencontainers.image.description="A visual explorer of computation graphs" \
      org.opencontainers.image.licenses="MIT"
ENV PATH=/opt/chainrule/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# The number is what counts; a name for it spares libraries that ask for one an exception.
RUN groupadd --gid 10001 chainrule \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin chainrule
COPY --from=build /opt/chainrule /opt/chainrule
WORKDIR /opt/chainrule
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]
ENTRYPOINT ["chainrule"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
