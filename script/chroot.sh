# shellcheck shell=bash
# Chroots of Debian, for script/with-ruby and script/newcomer. Source this after script/setup.sh, and call its functions
# as root in a mount namespace: their mounts vanish with the namespace.

# mirror SUITES: the first of this machine's apt archives that carries one of the suites ("sid|unstable").
mirror() {
  apt-get --print-uris update 2>/dev/null | sed -nE "s,^'(https?://[^' ]+)/dists/($1)/.*,\1,p" | head -n 1
}

# The mirror of this machine's own Debian.
own_debian() {
  mirror "$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")|stable|testing|unstable|sid"
}

# apt_source URI SUITE: a line of sources.list. A snapshot archive's index may have expired (Valid-Until); apt still
# checks its signature.
apt_source() {
  echo "deb [check-valid-until=no signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $1 $2 main"
}

# bootstrap SUITE FOLDER URI [ARCHITECTURE]: the smallest Debian, which starts no daemon and reaches its archives as
# this machine does. The caller writes its sources.list.
bootstrap() {
  install_packages debootstrap debian-archive-keyring ca-certificates || return
  # debootstrap goes through wget, which does not read apt's proxy.
  eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
  [ -z "${http_proxy:-}" ] || export http_proxy
  [ -z "${https_proxy:-}" ] || export https_proxy
  local others=(--include=ca-certificates,debian-archive-keyring)
  # Emulated, ca-certificates takes minutes to list them: there the list is this machine's alone, see copy_settings.
  [ -z "${4:-}" ] || others=(--include=debian-archive-keyring --arch="$4")
  with_progress "making a chroot of Debian $1" debootstrap --variant=minbase "${others[@]}" \
    --keyring=/usr/share/keyrings/debian-archive-keyring.gpg "$1" "$2" "$3" || return
  rm -f "$2"/etc/apt/sources.list.d/*
  apt-config dump --format '%F "%v";%n' Acquire | grep -E '^Acquire::https?::' >"$2/etc/apt/apt.conf.d/90host" || true
  printf '#!/bin/sh\nexit 101\n' >"$2/usr/sbin/policy-rc.d"
  chmod 755 "$2/usr/sbin/policy-rc.d"
}

copy_settings() { # copy_settings ROOT: gives programs inside this machine's settings of the network
  local file
  for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt "${SSL_CERT_FILE:-}" /etc/gemrc "$HOME/.gemrc" \
    "$HOME/.bundle/config"; do
    [ -n "$file" ] && [ -f "$file" ] || continue
    cmp -s "$file" "$1$file" && continue
    mkdir -p "$1$(dirname "$file")"
    cp -L --remove-destination "$file" "$1$file"
  done
  {
    cat /etc/hosts 2>/dev/null
    grep -qE '^127\.0\.0\.1.*\blocalhost\b' /etc/hosts || echo "127.0.0.1 localhost"
  } >"$1/etc/hosts.new"
  cmp -s "$1/etc/hosts.new" "$1/etc/hosts" && rm "$1/etc/hosts.new" || mv "$1/etc/hosts.new" "$1/etc/hosts"
  mkdir -p "$1$HOME"
}

mount_kernel() { # mount_kernel ROOT: the kernel's file systems
  local at=$1
  mountpoint -q "$at/proc" || mount -t proc proc "$at/proc"
  mountpoint -q "$at/dev" || mount --rbind /dev "$at/dev"
  mountpoint -q "$at/sys" || mount --rbind /sys "$at/sys"
}

inside() { # inside ROOT COMMAND...: as root, with the kernel's file systems there
  local at=$1
  shift
  mount_kernel "$at"
  chroot "$at" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"
}
