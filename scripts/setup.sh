#!/usr/bin/env bash
# Creates .venv with the locked dependencies and an editable install; run by `make setup`.
# PYTHON=... chooses the interpreter; otherwise the first of python3, python3.13, ... that is 3.11 to 3.13.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp="${1:?usage: scripts/setup.sh STAMP_FILE}"
venv=.venv

fail() {
    printf 'setup: %s\n' "$1" >&2
    exit 1
}

is_supported() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

can_make_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

has_apt_as_root() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1
}

apt_install() {
    printf 'setup: installing %s with apt-get\n' "$*" >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

find_python() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11; do
        if is_supported "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
}

if [ -n "${PYTHON:-}" ]; then
    is_supported "$PYTHON" ||
        fail "PYTHON=$PYTHON is not a working Python between 3.11 and 3.13"
    python=$PYTHON
else
    python=$(find_python)
    if [ -z "$python" ] && has_apt_as_root && ! command -v python3 >/dev/null 2>&1; then
        apt_install python3 python3-venv
        python=$(find_python)
    fi
    [ -n "$python" ] || fail "needs Python 3.11, 3.12 or 3.13; found \
$(python3 --version 2>&1 || true); install one and run: make setup PYTHON=/path/to/python"
fi

# An environment of another version than the one asked for, or one without a working pip, is made anew.
version_of() {
    "$1" -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null || true
}
if [ -e "$venv" ]; then
    if ! is_supported "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        rm -rf "$venv"
    elif [ -n "${PYTHON:-}" ] && [ "$(version_of "$python")" != "$(version_of "$venv/bin/python")" ]; then
        rm -rf "$venv"
    fi
fi

if [ ! -e "$venv" ]; then
    if ! can_make_venv "$python"; then
        if has_apt_as_root; then
            apt_install python3-venv
        fi
        can_make_venv "$python" || fail "$python cannot create virtual environments; \
on Debian: apt-get install python3-venv"
    fi
    "$python" -m venv "$venv"
fi

# The lock says everything, so pip may not read an index for anything else than the named files.
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$venv/bin/python" -m pip install --quiet --require-hashes -r requirements.lock
"$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation -e .
touch "$stamp"
