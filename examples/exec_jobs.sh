#!/bin/sh
# Run a program, in any language, for each message. Its exit code decides what happens to the message:
#
#    0                acked: it is done
#   75 (EX_TEMPFAIL)  nacked, as with any other code: it is retried, until no retry is left
#   65 (EX_DATAERR)   rejected: a dead letter at once, because a retry would also fail
#
#   sh examples/exec_jobs.sh
#
# The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if every
# job ended as expected.
set -eu

DELAYQ_HOME=$(mktemp -d)
export DELAYQ_HOME
trap 'rm -rf "$DELAYQ_HOME"' EXIT

# The program reads the payload from stdin, and the id and the attempt number from the environment.
resize='
  read -r picture size
  case $picture in
    *.jpg) ;;
    *) echo "$picture is not a picture" >&2; exit 65 ;;
  esac
  if [ "$size" = huge ] && [ "$DELAYQ_ATTEMPT" -eq 1 ]; then
    echo "not enough memory right now" >&2
    exit 75
  fi
  echo "$DELAYQ_ID: made $picture $size in attempt $DELAYQ_ATTEMPT"
'

delayq send example-pictures 'cat.jpg small' --as raw --id cat
delayq send example-pictures 'dog.jpg huge' --as raw --id dog
delayq send example-pictures 'notes.txt small' --as raw --id notes

echo "-- the first attempts"
delayq consume example-pictures --exec "$resize" --burst

echo "-- the retry of the failed one, now instead of in ten seconds"
delayq reschedule example-pictures dog --delay 0 >/dev/null
delayq consume example-pictures --exec "$resize" --burst

echo "-- a dead letter is kept until someone requeues or cancels it"
delayq dead show example-pictures notes
delayq cancel example-pictures notes
