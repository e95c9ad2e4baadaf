# Start a device as a process, run the self-test on it, and stop the device.
# Usage: sh check.sh PROGRAM DEVICE... ; DEVICE... is the command that serves device.sock.
program=$1
shift
rm -f device.sock
"$@" &
device=$!
until [ -S device.sock ] || ! kill -0 $device 2>/dev/null; do sleep 0.1; done
"$program"
status=$?
kill $device 2>/dev/null
rm -f device.sock
exit $status
