# SECONDS CMD...: until it succeeds.
end=$(($(date +%s) + $1))
shift
until "$@"; do
    [ "$(date +%s)" -lt $end ] || { echo "not in time: $*"; exit 1; }
    sleep 0.3
done
