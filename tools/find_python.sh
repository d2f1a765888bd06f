#!/usr/bin/env bash
# Print a Python interpreter of one of the versions given, in that order; exit 1 when there is none.
#
#   tools/find_python.sh 3.11 3.12 3.13
#
# A name on PATH may be a version manager's stub that refuses to run, so each candidate is run.
set -uo pipefail

for version in "$@"; do
  for candidate in "python$version" \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/python \
    "/usr/local/bin/python$version" "/opt/homebrew/bin/python$version" \
    "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/cpython-"$version"*/bin/python3 \
    python3; do
    found=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null)
    if [ "$found" = "$version" ]; then
      command -v "$candidate"
      exit 0
    fi
  done
done
exit 1
