# frozen_string_literal: true

# An extension that has a gem with compiled code.
#
# gemspec:: path in the checkout; the gem's files lie beside it
# sources:: folder of extconf.rb, in the checkout
# library:: path of the library in the gem, with %s for the version of Ruby
# licences:: file in the gem => package of the sysroot whose code is linked in, and words of its licence
# needed:: libraries that it needs, beside the C library => names of the functions that they have
# exported:: what others may see of it
# contained:: what it may lack => a text that then is not in it
NativeExtension = Struct.new(:gemspec, :sources, :library, :licences, :needed, :exported, :contained) do
  # @return [Array<NativeExtension>]
  def self.all = [NativeExtension::HEDDLE, NativeExtension::ODBC]

  # @param gem [String] name of a gem
  # @return [NativeExtension, nil] its own, if it has one
  def self.of(gem) = all.find { |extension| File.basename(extension.gemspec, ".gemspec") == gem }

  # @return [String] file name of the compiled library
  def name = File.basename(library)
end

NativeExtension::HEDDLE = NativeExtension.new(
  "heddle.gemspec", "ext/heddle", "lib/heddle/%s/heddle.so", {"LICENSE-liburing" => ["liburing-dev", "Jens Axboe"]}, {},
  %w[Init_heddle sqlite3_heddle_init], {"io_uring" => "\0uring\0"}
)
# unixODBC is there where a driver for ODBC is.
NativeExtension::ODBC = NativeExtension.new(
  "odbc/heddle-odbc.gemspec", "odbc/ext/heddle_odbc", "lib/heddle/db/odbc/%s/heddle_odbc.so", {},
  {"libodbc.so.2" => /\ASQL/}, %w[Init_heddle_odbc], {}
)
