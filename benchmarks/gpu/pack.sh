#!/usr/bin/env bash
# Carry this repository, TVM and what else is missing to a GPU machine that reaches no package registry, in one transfer
# of 64 MiB.
#
#   benchmarks/gpu/pack.sh OUTDIR [PYTHON]     PYTHON is the version over there, such as 3.12 (the default)
#
# writes to OUTDIR the code of this repository, TVM's compiler library and the rest of TVM, SQLAlchemy, platformdirs,
# msgspec, the headers of CUTLASS and of cuDNN's frontend and this project's entry points, with an unpack.sh, and says
# how large a transfer is. There:
#
#   . OUTDIR/unpack.sh               # unpacks into /tmp/site and /tmp/code, sets the environment, and goes to /tmp/code
#
# What is expected to be there: NumPy, ONNX, scikit-learn, joblib, psutil, cloudpickle, typer, rich, ml_dtypes, PyTorch
# with the nvidia-* wheels of CUDA 13, nvcc and g++.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1" && out=$(realpath "$1")
python_there=${2:-3.12}
most=$((64 << 20))
# Pinned as in pyproject.toml.
pinned() { grep -oE "\"$1==[^\"]+\"" "$repository/pyproject.toml" | tr -d '"'; }
packages=("$(pinned apache-tvm)" "$(pinned apache-tvm-ffi)" SQLAlchemy platformdirs msgspec
    nvidia-cutlass==4.2.0.0 nvidia-cudnn-frontend==1.20.0)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/collage-pack
wheels=$cache/wheels-$python_there
mkdir -p "$wheels"
platforms=()
for glibc in 2_39 2_35 2_34 2_31 2_28 2_27 2_24 2_17; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
platforms+=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64)
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "$python_there" --implementation cp \
    "${platforms[@]}" --dest "$wheels" "${packages[@]}"

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
for package in apache_tvm apache_tvm_ffi sqlalchemy platformdirs msgspec nvidia_cutlass nvidia_cudnn_frontend; do
    # The newest of several that were downloaded at different times.
    wheel=$(find "$wheels" -iname "$package-[0-9]*.whl" -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2-)
    python3 -m zipfile -e "$wheel" "$site"
done

# The branch filter for x86 and a dictionary of half the file: 247 MiB become 55. It takes four minutes, once.
compiler=$site/tvm/lib/libtvm_compiler.so
digest=$(sha256sum "$compiler" | cut -c1-16)
if [ ! -s "$cache/$digest.xz" ]; then
    xz -T1 --x86 --lzma2=preset=9e,dict=128MiB -c "$compiler" > "$cache/$digest.part"
    mv "$cache/$digest.part" "$cache/$digest.xz"
fi
rm "$compiler"

# Only what is imported or included: no sources, no examples, no other databases, nothing that only makes it faster.
# The headers of TVM stay: the engines are compiled there.
rm -rf "$site"/tvm/{src,web,licenses,3rdparty/cutlass} "$site"/tvm_ffi/{src,cython,3rdparty/libbacktrace} "$site/cudnn"
rm -rf "$site"/sqlalchemy/dialects/{mssql,mysql,oracle}
find "$site/sqlalchemy" -name '*.so' -delete
find "$site" -name '*.so' -exec strip --strip-unneeded {} +
find "$site" -type d \( -name test -o -name tests -o -name examples -o -name docs -o -name python \) \
    -path '*cutlass*' -prune -exec rm -rf {} +

# Backends and searchers are found by entry points: the project's own, without an installation over there.
python3 - "$repository/pyproject.toml" "$site" <<'PYTHON'
import pathlib, sys, tomllib
project = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["project"]
folder = pathlib.Path(sys.argv[2]) / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
folder.mkdir()
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
with (folder / "entry_points.txt").open("w") as out:
    for group, entries in project["entry-points"].items():
        print(f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), sep="\n", file=out)
PYTHON
tar -C "$site" --sort=name --owner=0 --group=0 --mtime=@0 -c . | xz -T1 -9e > "$out/site.tar.xz"
cp "$cache/$digest.xz" "$out/tvm-compiler.so.xz"
(cd "$repository" && git ls-files -z -- '*.py' '*.toml' '*.h' '*.cc' '*.cuh' '*.cu' '*.json' collage ':!tests' \
    ':!benchmarks/records' | sort -zu | tar --null -T - -c | xz -T1 -9e) > "$out/code.tar.xz"

cat > "$out/unpack.sh" <<'UNPACK'
# . unpack.sh: unpacks what lies beside it, once, sets the environment, and goes to the code
_packed=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p /tmp/site /tmp/code
if [ ! -e /tmp/site/.complete ]; then
    python3 - "$_packed" <<'PYTHON' && touch /tmp/site/.complete
import lzma, os, shutil, sys, tarfile
packed, library = sys.argv[1], "/tmp/site/tvm/lib/libtvm_compiler.so"
tarfile.open(f"{packed}/site.tar.xz").extractall("/tmp/site", filter="data")
with lzma.open(f"{packed}/tvm-compiler.so.xz") as source, open(library, "wb") as unpacked:
    shutil.copyfileobj(source, unpacked, 1 << 24)
os.chmod(library, 0o755)
PYTHON
fi
python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall("/tmp/code", filter="data")' "$_packed/code.tar.xz"
export PYTHONPATH=/tmp/site:/tmp/code${PYTHONPATH:+:$PYTHONPATH}
cd /tmp/code
UNPACK

carried=$(cat "$out"/{site.tar,code.tar,tvm-compiler.so}.xz "$out/unpack.sh" | wc -c)
# Files that git tracks, or would, travel in every transfer, but for those that a sparse checkout leaves out.
tree=$(cd "$repository" && git ls-files -z --cached --others --exclude-standard | sort -zu \
    | { xargs -0 stat -c %s 2> /dev/null || true; } | awk '{ sum += $1 } END { print sum + 0 }')
echo "$((carried >> 10)) KiB, with the working tree $(((carried + tree) >> 10)) KiB of $((most >> 10))"
if [ $((carried + tree)) -gt "$most" ]; then
    echo "too large for one transfer with the working tree, which need not travel, since its code is packed:" >&2
    echo "git sparse-checkout set --no-cone '/README.md', and git sparse-checkout disable afterwards" >&2
    exit 1
fi
