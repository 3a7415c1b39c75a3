# docker build -t chainrule .                                CPU
# docker build -t chainrule --build-arg TORCH_INDEX= .       CUDA: PyTorch as the default package index has it
# docker run --rm --read-only --init -p 8000:8000 chainrule        prints the link to open

# The digest is of the index of all platforms. CONTRIBUTING.md says how to renew it.
FROM python:3.12.14-slim-trixie@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS base


# What Chainrule needs, in a layer that changes only with constraints.txt and requirements/.
FROM base AS dependencies

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# Compilers, for the statistics kernel and the chapter's C++ extension. They stay in the stages that build. A pinned version
# would be gone from Debian's archive with its next update, and the build would fail.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ libc6-dev \
    && rm -rf /var/lib/apt/lists/*

# Only files whose SHA-256 is known, except PyTorch, whose files differ from index to index.
COPY constraints.txt ./
COPY requirements/server.txt requirements/server.txt
RUN python -m venv --without-pip /opt/python \
    && python -m pip --python /opt/python install --no-deps --require-hashes -r requirements/server.txt \
    && python -m pip --python /opt/python install -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch \
    && python -m pip --python /opt/python check


# Chainrule itself, and its C++ extension. A read-only container builds nothing, so it is built here.
FROM dependencies AS chainrule

ENV XDG_CACHE_HOME=/opt/chainrule/cache
COPY requirements/build.txt requirements/build.txt
RUN python -m pip --python /opt/python install --no-deps --require-hashes -r requirements/build.txt \
    && python -m pip install --no-deps --require-hashes -r requirements/build.txt
COPY README.md LICENSE hatch_build.py mkdocs.yml pyproject.toml ./
COPY app app
COPY docs docs
COPY static static
COPY templates templates
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && python -m pip --python /opt/python install --no-deps --target /opt/chainrule dist/*.whl \
    && PYTHONPATH=/opt/chainrule /opt/python/bin/python -m chainrule build-extension --no-cuda


# The dependencies without PyTorch's headers and without what tests them.
FROM dependencies AS pruned

RUN find /opt/python/lib -depth \( -path '*/torch/include' -o -path '*/torch/test' -o -type d -name tests \
        -o -path '*/torch/bin/*' -not -name torch_shm_manager \) -exec rm -rf {} +


FROM base

LABEL org.opencontainers.image.title="Chainrule" \
      org.opencontainers.image.description="A visual explorer of computation graphs" \
      org.opencontainers.image.licenses="MIT"
# The number is what counts; a name for it spares libraries that ask for one an exception. The base image comes without the
# bytecode of Python's own library, and nothing can be written once the container runs.
RUN groupadd --gid 10001 chainrule \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin chainrule \
    && python -m compileall -q -x '/(site-packages|ensurepip|idlelib|lib2to3|tkinter|turtledemo)/' "$(python -c 'import os; print(os.path.dirname(os.__file__))')"
COPY --from=pruned /opt/python /opt/python
COPY --from=chainrule /opt/chainrule /opt/chainrule
COPY deploy/healthcheck.py /opt/chainrule/healthcheck.py
ENV PATH=/opt/chainrule/bin:/opt/python/bin:$PATH \
    PYTHONPATH=/opt/chainrule \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/opt/chainrule/cache \
    CHAINRULE_HOST=0.0.0.0 \
    CHAINRULE_PORT=8000 \
    CHAINRULE_LOG_FORMAT=json \
    CHAINRULE_LOG_LEVEL=info
WORKDIR /opt/chainrule
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
# It asks where the variables say the server listens, so that is said by variables and not by options of `serve`.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-I", "/opt/chainrule/healthcheck.py"]
ENTRYPOINT ["chainrule"]
CMD ["serve"]
