# `bin/try` and the other commands of `bin/heddle` on any machine that runs containers, such as a Mac:
#
#   docker build --tag heddle .
#   docker run --rm heddle                        # bin/try
#   docker run --rm heddle bench scheduler
#
# Docker's default profile refuses io_uring; `docker run --security-opt seccomp=unconfined` lets Heddle use it.
FROM ruby:4.0-slim-bookworm

WORKDIR /heddle
COPY . .
RUN bin/heddle --version

ENTRYPOINT ["bin/heddle"]
CMD ["bench", "delay"]
