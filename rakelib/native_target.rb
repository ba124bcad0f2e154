# frozen_string_literal: true

# Required before an extconf.rb, in a process of its own: has mkmf compile for the Ruby whose rbconfig.rb is
# HEDDLE_TARGET_RBCONFIG, which need not run on this machine. HEDDLE_TARGET_CC is the compiler.
require "rbconfig" # so that mkmf finds it loaded

path = ENV.fetch("HEDDLE_TARGET_RBCONFIG")
Object.send(:remove_const, :RbConfig)
# Without its first statement, which refuses every Ruby but its own.
settings = File.read(path).sub(/^ *RUBY_VERSION\..*\n *raise .*\n/, "")
eval(settings, TOPLEVEL_BINDING, path) # rubocop:disable Security/Eval

# All versions are compiled alike, whatever flags each of these Rubies was compiled with. The code is linked with no
# libruby: each Ruby has its symbols already when it loads the code, from a library whose name differs between systems
# or from the program itself.
{
  "CC" => ENV.fetch("HEDDLE_TARGET_CC"),
  "CFLAGS" => "-O3 -g -fPIC -fstack-protector-strong",
  "CPPFLAGS" => "-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 $(DEFS) $(cppflags)",
  "LDFLAGS" => "",
  "DLDFLAGS" => "-Wl,-z,relro,-z,now,--as-needed,--exclude-libs,ALL",
  "LDSHARED" => "$(CC) -shared",
  "LIBS" => "-lm",
  **%w[LIBRUBYARG LIBRUBYARG_SHARED LIBRUBYARG_STATIC MAINLIBS RPATHFLAG hardenflags warnflags]
    .to_h { |name| [name, ""] }
}.each do |name, value|
  RbConfig::MAKEFILE_CONFIG[name] = value.dup
  RbConfig::CONFIG[name] = RbConfig.expand(value.dup)
end
