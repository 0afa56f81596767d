# The image in which legs run and reports are made: a base image, torch, and parity on top.
#
#   docker build -t parity .                      Python's slim image, and torch with CUDA from PyPI
#   docker build -t parity --build-arg BASE_IMAGE=my-framework:1.2 --build-arg TORCH= .
#                                                 a framework's own image that has its torch already
#
# The base needs glibc and, as `python3`, a Python 3.11 or newer with pip or ensurepip. Nothing in it is changed or
# shadowed; one .pth file is added, by which its Python finds `parity.record`. Where a build must be the same
# tomorrow, name the base by its digest.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS torch
# What pip installs, beside the numpy that torch expects, or nothing where the base has torch; and the index to take
# it from, where that is not PyPI.
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=
USER root
WORKDIR /opt/parity
COPY requirements.lock ./
# The torch that the lock names brings the dependencies that the lock names; any other brings its own.
RUN if [ -n "$TORCH" ]; then \
        export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore; \
        if grep -qxF "$TORCH" requirements.lock; then export PIP_CONSTRAINT=requirements.lock; fi; \
        python3 -m pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} $TORCH numpy; \
    fi

FROM ${BASE_IMAGE} AS builder
USER root
WORKDIR /src
COPY . ./
# Two environments: /build makes the wheel and stays behind; in /opt/parity, what parity imports, as locked, comes
# before what the base has. A base made by uv has no pip: then ensurepip's.
RUN set -e; \
    if python3 -m pip --version; then pip="python3 -m pip"; else python3 -m venv /pip; pip="/pip/bin/python -m pip"; fi; \
    python3 -m venv --without-pip /build; \
    $pip --python /build/bin/python install --no-cache-dir -c requirements.lock setuptools; \
    /build/bin/python -c 'from setuptools.build_meta import build_wheel; build_wheel("/build")'; \
    /build/bin/python -c 'import tomllib; \
needs = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]; \
print(*(one for one in needs if not one.startswith("torch")), sep="\n")' > /build/needs; \
    python3 -m venv --without-pip /opt/parity; \
    pip="$pip --python /opt/parity/bin/python install --no-cache-dir --only-binary=:all:"; \
    $pip -c requirements.lock -r /build/needs; \
    $pip --no-deps /build/*.whl; \
    site=$(/opt/parity/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
    cp -r entrypoint "$site"; \
    /opt/parity/bin/python -m compileall -q "$site/entrypoint"; \
    python3 -c 'import site; \
print(*(f"import site; site.addsitedir({one!r})" for one in site.getsitepackages()), sep="\n")' > "$site/base.pth"; \
    mkdir /opt/parity/recorder; \
    ln -s "$site/parity" /opt/parity/recorder/parity

FROM torch
ARG VERSION=0.1.0
ARG SOURCE=https://github.com/org/parity-action
LABEL org.opencontainers.image.title="parity" \
      org.opencontainers.image.description="Does a model trained under a parallel layout still compute the same thing as the plain run?" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=builder /opt/parity /opt/parity
RUN echo /opt/parity/recorder > "$(python3 -c 'import site; print(site.getsitepackages()[0])')/parity.pth"; \
    mkdir /work && chmod 1777 /work
# One writable folder serves any user on a read-only root: results, caches and temporary files. torch asks for the
# user's name, which an unknown uid has only by USER. parity comes last on the PATH: `python` in a leg is the base's.
ENV HOME=/work \
    TMPDIR=/work \
    TORCHINDUCTOR_CACHE_DIR=/work/.cache/torchinductor \
    TRITON_CACHE_DIR=/work/.cache/triton \
    USER=parity \
    LOGNAME=parity \
    PYTHONDONTWRITEBYTECODE=1 \
    PATH="$PATH:/opt/parity/bin"
USER 1000:1000
WORKDIR /work
ENTRYPOINT ["parity"]
CMD ["--help"]
