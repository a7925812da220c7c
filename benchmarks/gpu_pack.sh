#!/usr/bin/env bash
# Carry TVM and what else is missing to a GPU machine that reaches no package registry, in two parts of at most 64 MiB.
#
#   benchmarks/gpu_pack.sh OUTDIR [PYTHON]     PYTHON is the version over there, such as 3.12 (the default)
#
# writes OUTDIR/first (TVM's compiler library) and OUTDIR/second (the rest of TVM, SQLAlchemy, platformdirs, the headers
# of CUTLASS and of cuDNN's frontend, this project's entry points), each with an unpack.sh. There, in the root of a copy
# of this repository, after the parts were copied:
#
#   . first/unpack.sh /tmp/site; . second/unpack.sh /tmp/site      # the second one sets PYTHONPATH
#
# What is expected to be there: NumPy, ONNX, scikit-learn, joblib, psutil, cloudpickle, typer, rich, ml_dtypes, PyTorch
# with the nvidia-* wheels of CUDA 13, nvcc and g++.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1" && out=$(realpath "$1")
python_there=${2:-3.12}
# Pinned as in pyproject.toml.
pinned() { grep -oE "\"$1==[^\"]+\"" "$repository/pyproject.toml" | tr -d '"'; }
packages=("$(pinned apache-tvm)" "$(pinned apache-tvm-ffi)" SQLAlchemy platformdirs
    nvidia-cutlass==4.2.0.0 nvidia-cudnn-frontend==1.20.0)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/collage-pack
wheels=$cache/wheels-$python_there
mkdir -p "$wheels" "$out/first" "$out/second"
platforms=()
for glibc in 2_39 2_35 2_34 2_31 2_28 2_27 2_24 2_17; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
platforms+=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64)
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "$python_there" --implementation cp \
    "${platforms[@]}" --dest "$wheels" "${packages[@]}"

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
for package in apache_tvm apache_tvm_ffi sqlalchemy platformdirs nvidia_cutlass nvidia_cudnn_frontend; do
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
cp "$cache/$digest.xz" "$out/first/tvm-compiler.so.xz"
rm "$compiler"

# Only what is imported or included: no sources, no examples, no other Python's libraries.
rm -rf "$site"/tvm/{include,src,web,licenses} "$site"/tvm_ffi/{src,cython,3rdparty/libbacktrace} "$site/cudnn"
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
tar -C "$site" --sort=name --owner=0 --group=0 --mtime=@0 -c . | xz -T1 -9e > "$out/second/site.tar.xz"

cat > "$out/first/unpack.sh" <<'UNPACK'
# . first/unpack.sh SITE
_part=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); _site=${1:-/tmp/site}
if [ ! -e "$_site/.first" ]; then
    mkdir -p "$_site/tvm/lib"
    python3 - "$_part/tvm-compiler.so.xz" "$_site/tvm/lib/libtvm_compiler.so" <<'PYTHON' && touch "$_site/.first"
import lzma, os, shutil, sys
with lzma.open(sys.argv[1]) as packed, open(sys.argv[2], "wb") as library:
    shutil.copyfileobj(packed, library, 1 << 24)
os.chmod(sys.argv[2], 0o755)
PYTHON
fi
UNPACK
cat > "$out/second/unpack.sh" <<'UNPACK'
# . second/unpack.sh SITE: sets PYTHONPATH
_part=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); _site=${1:-/tmp/site}
if [ ! -e "$_site/.second" ]; then
    mkdir -p "$_site"
    python3 - "$_part/site.tar.xz" "$_site" <<'PYTHON' && touch "$_site/.second"
import sys, tarfile
tarfile.open(sys.argv[1]).extractall(sys.argv[2])
PYTHON
fi
export PYTHONPATH=$_site${PYTHONPATH:+:$PYTHONPATH}
UNPACK
du -b "$out"/*/*
