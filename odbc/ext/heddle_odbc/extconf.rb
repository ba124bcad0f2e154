# frozen_string_literal: true

require "mkmf"

# What a build that was killed has left of its probes is no source.
FileUtils.rm_f(Dir["#{__dir__}/conftest.*"])
$defs << "-D_GNU_SOURCE"
$defs << "-DHEDDLE_DEBUG=1" if ENV["HEDDLE_DEBUG"] == "1"
$CFLAGS << " -std=gnu11 -fvisibility=hidden -Wall -Wextra -Wshadow"
$CFLAGS << " -MD" if ENV["CCACHE_DEPEND"] # see use_ccache in script/setup.sh
# Ruby's own headers are not held to our warnings.
$INCFLAGS.gsub!("-I$(hdrdir)", "-isystem $(hdrdir)")
$INCFLAGS.gsub!("-I$(arch_hdrdir)", "-isystem $(arch_hdrdir)")
$INCFLAGS.gsub!("-I$(hdrdir)/ruby/backward", "-isystem $(hdrdir)/ruby/backward")
$warnflags = $warnflags.to_s.gsub(/-Wdeclaration-after-statement|-Wunused-parameter|-Wno-unused-parameter/, "")

append_ldflags("-Wl,-z,now") # as in heddle's extconf.rb
pkg_config("odbc")
abort "heddle-odbc needs POSIX threads" unless have_library("pthread", "pthread_create", "pthread.h")
unless have_header("sqlext.h") && have_library("odbc", "SQLDriverConnectW", %w[sqlext.h sqlucode.h])
  abort "heddle-odbc needs unixODBC with its headers: install unixodbc-dev (Debian, Ubuntu, Alpine), " \
    "unixODBC-devel (Fedora) or unixodbc (Homebrew), then install the gem again"
end
# For builds that look for mistakes, as those of heddle itself.
if (sanitizers = ENV["HEDDLE_SANITIZE"])
  $CFLAGS << " -fsanitize=#{sanitizers} -fno-omit-frame-pointer -O1 -g"
  $CFLAGS << if sanitizers == "thread"
    " --param tsan-instrument-func-entry-exit=0"
  else
    " -fno-sanitize-recover=undefined --param asan-stack=0"
  end
  $DLDFLAGS << " -fsanitize=#{sanitizers}"
  $DLDFLAGS.gsub!("-Wl,-z,defs", "") # the sanitizers' symbols come from libraries that are loaded before
end
if ENV["HEDDLE_COVERAGE"] == "1"
  $CFLAGS << " --coverage -O0 -g"
  $DLDFLAGS << " --coverage"
end
# iODBC's wide characters have four bytes.
unless try_static_assert("sizeof(SQLWCHAR) == 2", "sqlext.h")
  abort "heddle-odbc needs a driver manager whose wide characters have two bytes, as those of unixODBC"
end

$CFLAGS << " -Werror" if ENV["HEDDLE_WERROR"] == "1" # rake compile; not where a user installs the gem
create_makefile("heddle/db/odbc/heddle_odbc")
