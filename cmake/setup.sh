# What ./quickstart and ./test share: everything between a bare Debian machine and a built tree. Sourced, never run.
#   taut_setup        installs what is missing: Debian packages, then LibTorch in a private Python environment
#   taut_build T…     configures the preset "release" and builds the given targets (none = everything)
# Whatever is downloaded or built for dependencies lies in one cache folder, ${TAUT_CACHE:-~/.cache/taut}, keyed by
# versions, so that a second clone finds it ready. Nothing else outside the clone changes but the packages listed here.
set -euo pipefail

taut_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
export TAUT_CACHE
TAUT_CACHE=$(realpath -m "${TAUT_CACHE:-${HOME:-/root}/.cache/taut}")
taut_log_dir=$TAUT_CACHE/logs

# Debian packages and what they are for.
taut_packages=(
  g++                   # compiles Taut (C++20)
  cmake                 # build: configure
  ninja-build           # build: run
  ccache                # build: objects shared between clones
  pkg-config            # build: finds SentencePiece
  libgloo-dev           # headers of Gloo, which LibTorch's wheel leaves out (collectives on the CPU)
  nlohmann-json3-dev    # configs and reports
  libsimdjson-dev       # reads big JSON
  libcli11-dev          # the command line
  libspdlog-dev         # log lines
  libsqlite3-dev        # traces are SQLite files
  zlib1g-dev            # corpora and traces in .gz
  libsentencepiece-dev  # the tokenizer
  libx11-dev libxrandr-dev libxinerama-dev libxcursor-dev libxi-dev   # the window under X11
  libgl1 libegl1 libgl1-mesa-dri                                      # its pictures, with or without a display
  libgtest-dev          # tests
  libgmock-dev          # tests
  fortunes              # 2.5 MB of English text that the samples train on
)
# From PyPI, into the private environment. The torch wheel brings LibTorch and, as wheels, the CUDA libraries and headers;
# of those, the folders crt/ and cccl/ are wheels of their own.
taut_wheels=(torch==2.11.0 numpy==2.4.6 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85)
taut_wheels_download="about 2.7 GB"
taut_wheels_disk_mb=5500
taut_build_disk_mb=2500
# An independent reader of Nsight Systems files, which ./test lets read our traces: 15 MB to download, without the parts of
# it that this needs not.
taut_reader_wheels=(nsys-ai==0.3.0 duckdb==2.0.1 rich==15.0.0 markdown-it-py==4.3.0 mdurl==0.1.2 pygments==2.21.0
  typing_extensions==4.16.0)
taut_shm_mb=200

taut_started=$SECONDS
say() { printf '[%3d s] %s\n' $((SECONDS - taut_started)) "$*"; }
fail() {  # fail WHAT HINT
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}

# run_logged LABEL LOG HINT COMMAND…: runs a command quietly, tells every 20 seconds that it is alive (with the last line of
# its log when that is a ninja counter), and shows the end of the log when it fails.
run_logged() {
  local label=$1 log=$taut_log_dir/$2 hint=$3 child rc=0 waited=0 last
  shift 3
  say "$label"
  "$@" >"$log" 2>&1 </dev/null &
  child=$!
  trap 'kill '"$child"' 2>/dev/null; exit 130' INT TERM
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.5
    waited=$((waited + 1))
    if ((waited % 40 == 0)); then
      last=$(tail -n 1 "$log" | grep -oE '^\[[0-9]+/[0-9]+\]' || true)
      say "  still at it${last:+ $last}"
    fi
  done
  wait "$child" || rc=$?
  trap - INT TERM
  if ((rc != 0)); then
    tail -n 30 "$log" >&2
    fail "$label: failed (exit code $rc; the whole log: $log)" "$hint"
  fi
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Sets `missing` to the packages that are not there.
find_missing_packages() {
  command -v apt-get >/dev/null || fail "this is no Debian-like system (apt-get is missing)" \
    "install what cmake/setup.sh lists with your own package manager, then follow \"Build by hand\" in CONTRIBUTING.md"
  missing=()
  local package
  for package in "${taut_packages[@]}"; do
    installed "$package" || missing+=("$package")
  done
  # Any python3 will do, but Debian's own keeps `venv` in a package of its own.
  if ! command -v python3 >/dev/null; then
    missing+=(python3 python3-venv)
  elif ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    missing+=(python3-venv)
  fi
}

install_packages() {
  find_missing_packages
  ((${#missing[@]})) || return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "these packages are missing, and this user may not install them: ${missing[*]}" \
      "as root: apt-get install ${missing[*]}"
    as_root=(sudo)
    sudo -n true 2>/dev/null || [ -t 0 ] || fail "sudo wants a password, but there is no terminal to ask on" \
      "first: sudo apt-get install ${missing[*]}"
    sudo true
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=600)
  run_logged "Debian packages: refreshing the list" apt-update.log "is the network up? try: apt-get update" "${apt[@]}" update
  run_logged "Debian packages: installing ${missing[*]}" apt-install.log \
    "the lines above say which package; try: apt-get install ${missing[*]}" \
    "${apt[@]}" install --no-install-recommends "${missing[@]}"
}

# Sets `venv` to the folder of the private environment, keyed by the versions in it (a checksum of the list above).
name_venv() {
  local python
  python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || python=3
  venv=$TAUT_CACHE/venv-${taut_wheels[0]//==/-}-py$python-$(echo "${taut_wheels[*]}" | cksum | cut -d' ' -f1)
}

# An environment counts only with the file `complete`, written last; one without it is a try that was interrupted. (It is not
# built elsewhere and renamed, because scripts inside, such as torchrun, carry its path.)
venv_is_complete() { [ -e "$venv/complete" ] && "$venv/bin/python" -c '' 2>/dev/null; }

# True when .venv is a folder of the user's own, not our link: then it is used as it is.
venv_is_users() { [ -d "$taut_root/.venv" ] && [ ! -L "$taut_root/.venv" ]; }

install_wheels() {
  if venv_is_users; then
    compgen -G "$taut_root/.venv/lib/python3*/site-packages/torch/lib/libtorch.so" >/dev/null ||
      fail "$taut_root/.venv is an environment of your own without torch" "move it away, or: .venv/bin/pip install ${taut_wheels[*]}"
    return
  fi
  name_venv
  if ! venv_is_complete; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "python3 is $(python3 -V), Taut's wheels need 3.11 or newer" \
      "put a newer python3 first in PATH"
    need_space "$TAUT_CACHE" $((taut_wheels_disk_mb + 3000)) "the LibTorch wheels"
    rm -rf "$venv"
    run_logged "LibTorch: creating $venv" venv.log "is there space left? df -h $TAUT_CACHE" python3 -m venv "$venv"
    mkdir -p "$TAUT_CACHE/tmp"
    run_logged "LibTorch: installing ${taut_wheels[*]} from PyPI ($taut_wheels_download)" pip.log \
      "is the network up? try: $venv/bin/python -m pip download --no-deps ${taut_wheels[0]}" \
      env TMPDIR="$TAUT_CACHE/tmp" "$venv/bin/python" -m pip install --no-cache-dir --progress-bar off "${taut_wheels[@]}"
    : >"$venv/complete"
  fi
  ln -sfn "$venv" "$taut_root/.venv"
}

# For ./test alone; without it one test is skipped.
install_reader() {
  ! command -v nsys-ai >/dev/null || return 0
  local folder=$TAUT_CACHE/venv-${taut_reader_wheels[0]//==/-}
  [ ! -e "$folder/complete" ] || return 0
  say "Tests: installing ${taut_reader_wheels[0]} from PyPI into $folder"
  rm -rf "$folder"
  if python3 -m venv "$folder" && "$folder/bin/python" -m pip install --quiet --no-cache-dir --no-deps "${taut_reader_wheels[@]}"; then
    : >"$folder/complete"
  else
    rm -rf "$folder"
    say "  it cannot be installed; the test that needs it will be skipped"
  fi
} >&2

# need_space FOLDER MB FOR: the folder's file system must have that much left.
need_space() {
  local free
  free=$(df -Pm "$1" | awk 'NR == 2 {print $4}')
  [ "$free" -ge "$2" ] || fail "$1 has $free MB left, $3 need $2 MB" "make room, or set TAUT_CACHE to a folder on a larger disk"
}

check_machine() {
  [ "$(uname -m)" = x86_64 ] || fail "this machine is $(uname -m), Taut builds on x86_64" "use an x86_64 Linux machine"
  mkdir -p "$taut_log_dir" 2>/dev/null || fail "cannot write to the cache folder $TAUT_CACHE" "set TAUT_CACHE to a folder that you may write to"
  local shm
  shm=$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 {print $4}')
  [ "${shm:-0}" -ge $taut_shm_mb ] || fail "/dev/shm has ${shm:-0} MB left; ranks and loaders share memory there and need $taut_shm_mb MB" \
    "in a container: --shm-size=1g; as root: mount -o remount,size=1g /dev/shm"
}

# What the set-up would do, without doing it.
taut_dry_run() {
  find_missing_packages
  if ((${#missing[@]})); then
    echo "Debian packages to install: ${missing[*]}"
    local sizes
    sizes=$(apt-get install --assume-no --no-install-recommends -o Debug::NoLocking=true "${missing[@]}" 2>/dev/null |
      grep -E '^(Need to get|After this operation)') || true
    printf '%s\n' "${sizes:-sizes are unknown until apt-get update}" | sed 's/^/  /'
  else
    echo "Debian packages to install: none, all there"
  fi
  name_venv
  if venv_is_users; then
    echo "LibTorch: your own environment $taut_root/.venv is used"
  elif venv_is_complete; then
    echo "LibTorch: $venv is there"
  else
    echo "LibTorch: ${taut_wheels[*]} from PyPI into $venv: $taut_wheels_download to download, $taut_wheels_disk_mb MB on disk"
  fi
  echo "Build: $taut_root/build/release, up to $taut_build_disk_mb MB; compiler cache in $TAUT_CACHE/ccache, up to 4 GB"
}

# taut_setup [STEP]: the set-up, and one more step where a command needs it. Two clones that set up at once take turns.
taut_setup() {
  check_machine
  exec 9>"$TAUT_CACHE/lock"
  flock -n 9 || { say "another set-up uses $TAUT_CACHE: waiting for it"; flock 9; }
  install_packages
  install_wheels
  "${1:-true}"
  exec 9>&-
}

# A LibTorch unit takes up to 2 GB to compile: no more jobs than memory holds.
build_jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  echo $((memory_gb / 2 < 1 ? 1 : memory_gb / 2 < cores ? memory_gb / 2 : cores))
}

taut_build() {
  [ -d "$taut_root/build/release" ] || need_space "$taut_root" $taut_build_disk_mb "the build"
  local cmake=(env -C "$taut_root" cmake)
  run_logged "Build: configuring build/release" configure.log "the first error above names what is missing" "${cmake[@]}" --preset release
  run_logged "Build: compiling" build.log "if the compiler was killed, memory ran out: close something and run this again" \
    "${cmake[@]}" --build --preset release -j "$(build_jobs)" ${1:+--target "$@"}
}
