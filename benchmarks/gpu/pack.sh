#!/usr/bin/env bash
# Carry TVM and what else is missing to a GPU machine that reaches no package registry, in two parts, each of which fits
# into 64 MiB together with this repository's files: what travels is the working tree and what is carried besides.
#
#   benchmarks/gpu/pack.sh OUTDIR [PYTHON]     PYTHON is the version over there, such as 3.12 (the default)
#
# writes OUTDIR/first (the beginning of TVM's compiler library) and OUTDIR/second (the rest of it, the rest of TVM,
# SQLAlchemy, platformdirs, msgspec, the headers of CUTLASS and of cuDNN's frontend, this project's entry points), each
# with an unpack.sh, and says how large a transfer of each is. There, in the root of a copy of this repository:
#
#   . first/unpack.sh /tmp/site      # with the first part
#   . second/unpack.sh /tmp/site     # with the second part, on the same machine; sets PYTHONPATH
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
mkdir -p "$wheels" "$out/first" "$out/second"
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

# The compiler library is cut where both parts become equally large.
packed=$(stat -c %s "$cache/$digest.xz")
cut=$(((packed + $(stat -c %s "$out/second/site.tar.xz")) / 2))
head -c "$cut" "$cache/$digest.xz" > "$out/first/tvm-compiler.so.xz.0"
tail -c +$((cut + 1)) "$cache/$digest.xz" > "$out/second/tvm-compiler.so.xz.1"

cat > "$out/first/unpack.sh" <<'UNPACK'
# . first/unpack.sh SITE: keeps the first piece there
_part=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); _site=${1:-/tmp/site}
if mkdir -p "$_site"; then cp "$_part/tvm-compiler.so.xz.0" "$_site/"; fi
UNPACK
cat > "$out/second/unpack.sh" <<'UNPACK'
# . second/unpack.sh SITE: joins the pieces, and sets PYTHONPATH
_part=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); _site=${1:-/tmp/site}
if [ ! -e "$_site/.complete" ]; then
    python3 - "$_site" "$_part" <<'PYTHON' && touch "$_site/.complete"
import lzma, os, shutil, sys, tarfile
site, part = sys.argv[1:]
tarfile.open(f"{part}/site.tar.xz").extractall(site)
library, begun = f"{site}/tvm/lib/libtvm_compiler.so", f"{site}/tvm-compiler.so.xz.0"
with open(begun, "ab") as pieces, open(f"{part}/tvm-compiler.so.xz.1", "rb") as rest:
    shutil.copyfileobj(rest, pieces, 1 << 24)
with lzma.open(begun) as packed, open(library, "wb") as unpacked:
    shutil.copyfileobj(packed, unpacked, 1 << 24)
os.chmod(library, 0o755)
os.remove(begun)
PYTHON
fi
export PYTHONPATH=$_site${PYTHONPATH:+:$PYTHONPATH}
UNPACK

# Files that git tracks, or would, travel in every transfer, but for those that a sparse checkout leaves out.
tree=$(cd "$repository" && git ls-files -z --cached --others --exclude-standard | sort -zu \
    | { xargs -0 stat -c %s 2> /dev/null || true; } | awk '{ sum += $1 } END { print sum + 0 }')
for part in first second; do
    carried=$(cat "$out/$part"/* | wc -c)
    echo "$part: $((carried >> 10)) KiB, with the repository $(((carried + tree) >> 10)) KiB of $((most >> 10))"
    if [ $((carried + tree)) -gt "$most" ]; then
        echo "$part and the repository do not fit into one transfer; without the records of the CPUs they may:" >&2
        echo "git sparse-checkout set --no-cone '/*' '!/benchmarks/records'" >&2
        exit 1
    fi
done
