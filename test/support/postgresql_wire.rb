# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "tmpdir"

# ext/heddle/wire/postgresql without Ruby: the program in postgresql_wire/ is compiled once and answers
# questions.
module PostgreSQLWire
  SOURCES = Dir[File.expand_path("postgresql_wire/*.c", __dir__)]
  FOLDER = File.expand_path("../../ext/heddle", __dir__)

  class << self
    # @return [String] the answer to a question, whose arguments are sent as bytes
    def ask(question, *arguments)
      @program ||= start
      @program.puts([question, *arguments.map { |argument| argument.b.unpack1("H*") }].join(" "))
      answer = @program.gets or raise "the program ended at #{question} #{arguments.inspect}"
      answer.chomp
    end

    private

    def start
      folder = Dir.mktmpdir
      Minitest.after_run { FileUtils.rm_rf(folder) }
      program = "#{folder}/postgresql_wire"
      sources = Dir["#{FOLDER}/wire/postgresql/*.c"]
      options = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-I#{FOLDER}", "-o", program]
      system(RbConfig::CONFIG["CC"].split.first, *options, *SOURCES, *sources, "-lm", exception: true)
      IO.popen([program], "r+")
    end
  end
end
