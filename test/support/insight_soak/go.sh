#!/bin/bash
# go.sh VERSION ARGS
cd /work/r_fuzz; exec nice -n 8 script/with-ruby $1 bundle exec ruby /tmp/fuzz/drive.rb "$@"
