#!/bin/sh
# One part of a federation over Flower. Settings come from the environment: deploy/umbel.env has them all.
#
#   federation.sh install       umbel and Flower, into a virtual environment of their own
#   federation.sh superlink     the server that nodes connect to
#   federation.sh supernode N   node N of a site
#   federation.sh run           the run itself, or the rest of it; fails unless it comes to its end
#   federation.sh all           on this machine, without certificates: a SuperLink, two nodes and the run
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
home=${UMBEL_HOME:-/var/lib/umbel}
venv=${UMBEL_VENV:-/opt/umbel/venv}
superlink=${UMBEL_SUPERLINK:-127.0.0.1:8000}
keys=${UMBEL_KEYS:-}
app=${UMBEL_APP:-$home/my-sites}

PATH=$venv/bin:$PATH
export PATH
export FLWR_HOME="$home/flwr" FLWR_TELEMETRY_ENABLED=0
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # several nodes share a machine

fail() {
  echo "federation.sh: $1" >&2
  exit 2
}

install() {
  umask 022 # every user may run the programs
  python3 -m venv "$venv"
  "$venv/bin/pip" install --constraint "$here/../constraints.txt" "$here/..[flower,metrics]"
}

superlink() {
  host=${UMBEL_LISTEN:-$superlink}
  host=${host%:*}
  if [ -n "$keys" ]; then
    set -- --ssl-ca-certfile "$keys/ca.crt" --ssl-certfile "$keys/server.pem" \
      --ssl-keyfile "$keys/server.key" --enable-supernode-auth
  elif [ "$host" = 127.0.0.1 ]; then
    set -- --insecure
  else
    fail "UMBEL_LISTEN: $host is not 127.0.0.1: other machines need certificates, in UMBEL_KEYS"
  fi
  exec flower-superlink "$@" --database "$home/link.db" --host "$host" --port "${superlink##*:}" \
    --disable-runtime-dependency-installation
}

supernode() {
  FLWR_HOME=$home/flwr-$1 # several nodes, and the server, may be on one machine
  config="memory-dir=\"$home/memory-$1\" ${UMBEL_NODE_CONFIG:-}"
  [ -z "${UMBEL_DATA:-}" ] || config="data=\"$UMBEL_DATA\" $config"
  port=$((${UMBEL_NODE_PORT:-9094} + $1))
  if [ -n "$keys" ]; then
    set -- --root-certificates "$keys/ca.crt" --auth-supernode-private-key "$keys/node$1"
  else
    set -- --insecure
  fi
  exec flower-supernode "$@" --superlink "$superlink" --host 127.0.0.1 --port "$port" \
    --node-config "$config"
}

# Flower's command finds the SuperLink by this file.
known() {
  mkdir -p "$FLWR_HOME"
  if [ -n "$keys" ]; then secured="root-certificates = \"$keys/ca.crt\""; else secured="insecure = true"; fi
  printf '[superlink.here]\naddress = "%s"\n%s\n' "$superlink" "$secured" > "$FLWR_HOME/config.toml"
}

run() {
  known
  [ -e "$app" ] || umbel flower new "$app" ${UMBEL_EXPERIMENT:+--experiment "$UMBEL_EXPERIMENT"}
  runs=$home/runs
  flwr run "$app" here --stream --run-config "runs-dir=\"$runs\" ${UMBEL_RUN_CONFIG:-}"
  folder=$(python -c 'import sys, pathlib, umbel
experiment = umbel.read(sys.argv[2], looking=True)
print(umbel.RunFolder.of(pathlib.Path(sys.argv[1]), experiment).path)' "$runs" "$app/experiment.toml")
  # `flwr run` succeeds whenever a run was begun: a finished one has this file.
  [ -e "$folder/clusters.csv" ] || fail "$folder: not finished; the same command goes on with it"
  umbel show "$folder"
}

all() {
  keys= started=
  trap 'kill $started 2> /dev/null || true; wait' EXIT
  trap 'exit 130' INT TERM
  (superlink) &
  started="$started $!"
  known
  until flwr ls here > /dev/null 2>&1; do
    kill -0 "$!" 2> /dev/null || fail "the SuperLink has ended"
    sleep 1
  done
  for node in 0 1; do
    (UMBEL_NODE_CONFIG="${UMBEL_NODE_CONFIG:-partition-id=$node num-partitions=2}" supernode "$node") &
    started="$started $!"
  done
  run
}

umask 077 # what nodes keep of their clients is nobody else's
mkdir -p "$home"
cd "$home"
case ${1:-} in
  install | superlink | run | all) "$1" ;;
  supernode) supernode "${2:-0}" ;;
  *) fail "'${1:-}' is not install, superlink, supernode, run or all" ;;
esac
