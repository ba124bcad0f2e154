# shellcheck shell=bash
# Functions that bin/test, bin/try, bin/setup and script/with-ruby share. Source this with the working tree in $tree.

export HOME=${HOME:-~} # that of this user, which cron and services leave out
heddle_cache=${XDG_CACHE_HOME:-$HOME/.cache}/heddle

# The version of the Ruby on PATH, such as "3.1"; nothing without a Ruby. Below `bundle exec` a Ruby would load a bundle
# whose gems may not be installed yet.
ruby_version() {
  env -u RUBYOPT -u BUNDLE_GEMFILE ruby --disable=gems -e 'print RUBY_VERSION[/\A\d+\.\d+/]' 2>/dev/null || true
}

# The same, for a command that takes one.
own_ruby() {
  ruby_version | grep . || { echo "setup: there is no Ruby on PATH: install Ruby and a C compiler" >&2; return 69; }
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Whether as_root will work. Asks for a password at a terminal.
may_be_root() {
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; }
}

# with_progress WHAT COMMAND...: prints WHAT after a second, then the last line of the command's output every five
# seconds, and all of the output if the command fails.
with_progress() (
  what=$1 status=0 shell=$BASHPID output=$(mktemp)
  trap 'rm -f "$output"' EXIT # also where a signal ends this
  shift
  {
    trap - EXIT
    exec {nap}<> <(:) # read waits there, without a process that would outlive this one
    read -rt 1 -u "$nap" || echo "setup: $what" >&2
    while read -rt 5 -u "$nap" || kill -0 "$shell" 2>/dev/null; do
      printf 'setup:   %.100s\n' "$(tail -n 1 "$output" | tr -d '\r')" >&2
    done
  } &
  ticker=$!
  "$@" >"$output" 2>&1 || status=$?
  kill "$ticker" && wait "$ticker" 2>/dev/null || true
  [ $status = 0 ] || cat "$output" >&2
  exit $status
)

# Debian asks it whether a package may start its daemon.
policy=/usr/sbin/policy-rc.d

# install_packages NAME...: those Debian packages that are missing, without starting a daemon.
install_packages() {
  local missing=() name status=0
  command -v dpkg-query >/dev/null || return 0 # not Debian: a missing program is reported by its user
  for name in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if ! may_be_root; then
    echo "setup: this takes root or sudo; have root run \`apt-get install ${missing[*]}\`, then run this again" >&2
    return 69
  fi
  (
    flock 8 # dpkg-query's file: apt-get does not wait for another one, nor would that one's policy last
    if [ ! -e "$policy" ]; then
      trap 'as_root rm -f "$policy"' EXIT # also where a signal ends this: no package would ever start a daemon again
      printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
      as_root chmod 755 "$policy"
    fi
    with_progress "looking for packages" as_root apt-get -q -o Acquire::Check-Valid-Until=false update 8<&- &&
      with_progress "installing ${missing[*]}" \
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        --no-install-recommends install "${missing[@]}" 8<&-
  ) 8<"$(command -v dpkg-query)" || status=1
  if [ -d /run/systemd/system ]; then # nor may one start at the next boot because the tests needed its program
    for name in "${missing[@]}"; do
      case $name in
        postgresql | pgbouncer | memcached | redis-server | beanstalkd | mosquitto | nats-server | pure-ftpd | slapd) ;;
        dovecot-imapd) name=dovecot ;;
        openssh-server) name=ssh ;;
        *) continue ;;
      esac
      as_root systemctl disable --quiet --now "$name" || true
    done
  fi
  return $status
}

# The packages that building the gem and the load server needs.
packages_to_build=(build-essential pkg-config ruby ruby-dev ruby-bundler liburing-dev git ca-certificates)
case $(command -v ruby || true) in
  "" | /bin/* | /usr/bin/*) ;;
  # The Ruby that is found first brings what these have.
  *) packages_to_build=(${packages_to_build[@]/#ruby*/}) ;;
esac

# The tools for a change of Heddle's own code and its tests; clang, musl-tools: for `rake warnings portability`.
packages_to_change=(ccache clang musl-tools procps strace)

# The servers and headers for the tests of unmodified libraries, and the tools for the chroot of newer Rubies.
packages_to_test=("${packages_to_change[@]}" libyaml-dev libffi-dev libssl-dev zlib1g-dev libcurl4-openssl-dev libpq-dev
  libmariadb-dev mariadb-server-core mariadb-client-core postgresql pgbouncer memcached redis-server openssl curl
  openssh-client util-linux valgrind debootstrap debian-archive-keyring libsqlite3-dev unixodbc unixodbc-dev
  libsqliteodbc odbc-mariadb odbc-postgresql tdsodbc nginx-light golang-go python3-aiohttp python3-asyncpg
  python3-uvloop chromium fonts-dejavu-core)

# The servers that only the libraries of test/compatibility talk to.
packages_for_compatibility=(beanstalkd dovecot-imapd mosquitto nats-server openssh-client openssh-server pure-ftpd
  slapd)

# Node.js often comes from elsewhere than Debian, with npm in it.
install_node() {
  local missing=()
  command -v node >/dev/null || missing+=(nodejs)
  command -v npm >/dev/null || missing+=(npm)
  install_packages ${missing[@]+"${missing[@]}"}
}

# compile VERSION: the gem, for that Ruby, and the load server. Starts no Ruby if nothing has changed since.
compile() {
  local stamp=$tree/tmp/compiled-$1
  compiled "$1" "$stamp" && return
  mkdir -p "$tree/tmp"
  (
    flock 9
    ! compiled "$1" "$stamp" || exit 0 # by another run meanwhile
    touch "$stamp.new"                 # a change from now on is one
    with_progress "compiling for Ruby $1" "$tree/script/with-ruby" "$1" \
      bundle exec rake --quiet --rakefile "$tree/Rakefile" --directory "$tree" compile compile:server 9>&-
    mv "$stamp.new" "$stamp"
  ) 9>"$tree/tmp/compile.lock"
}

# compiled VERSION STAMP: whether all was compiled after the last change of what it is made of.
compiled() {
  local changed
  [ -e "$2" ] && [ -e "$tree/lib/heddle/$1/heddle.so" ] && [ -e "$tree/lab/ext/server/heddle-server" ] || return
  changed=$(find "$tree"/{ext,odbc/ext,lab/ext,rakelib,Rakefile,script/setup.sh} -newer "$2" \
    ! -path "$tree/lab/ext/server" ! -name "heddle-server*" -print -quit) && [ -z "$changed" ]
}

# use_ccache: puts links before the compilers on PATH that run them by way of ccache, where it is installed. What this
# or another checkout compiled before is then not compiled again: the checks of bin/test compile each C file a dozen
# times.
use_ccache() {
  local links=$heddle_cache/compilers name ccache
  ccache=$(command -v ccache) || return 0
  mkdir -p "$links" 2>/dev/null || return 0
  for name in cc gcc clang x86_64-linux-gnu-gcc aarch64-linux-gnu-gcc; do
    # two of these may run at once
    [ -e "$links/$name" ] || ! command -v "$name" >/dev/null || ln -s "$ccache" "$links/$name" 2>/dev/null || true
  done
  case :$PATH: in
    *":$links:"*) ;;
    *) export PATH=$links:$PATH ;;
  esac
  # With the option -MD the compiler itself tells ccache which headers it read. ccache need not preprocess a file that
  # it does not know before compiling it, which takes a third of the time.
  export CCACHE_DEPEND=1
}

# use_bundle VERSION: Bundler works on that Ruby's own copy of the lock file, since no one lock suits every version.
# Gems are kept outside the tree (Bundler puts each Ruby's in a folder of its own), so that a new checkout is quick.
# HEDDLE_BUNDLE=compatibility takes the bundle of test/compatibility instead of the tree's.
use_bundle() {
  local gemfile=Gemfile folder=bundle
  [ -z "${HEDDLE_NEWEST:-}" ] || folder=newest # see bin/test --newest
  [ -z "${HEDDLE_BUNDLE:-}" ] || gemfile=test/$HEDDLE_BUNDLE/Gemfile folder=$folder-$HEDDLE_BUNDLE
  folder=$tree/tmp/$folder/$1
  mkdir -p "$folder"
  [ -f "$folder/Gemfile" ] ||
    echo "eval_gemfile File.expand_path(\"../../../$gemfile\", __dir__)" >"$folder/Gemfile"
  export BUNDLE_GEMFILE=$folder/Gemfile BUNDLE_PATH=$heddle_cache/gems BUNDLE_APP_CONFIG=$folder/config
  export BUNDLE_USER_CACHE=$heddle_cache/bundler BUNDLE_SILENCE_ROOT_WARNING=1
}
