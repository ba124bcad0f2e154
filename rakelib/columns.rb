# frozen_string_literal: true

# Lines that are wider than a reader's window, for `rake style`.
#
# Markdown may exceed the limit in tables, in fenced code, and by the addresses of its links.
module Columns
  MOST = 120
  FILES = ["*.{md,gemspec}", "{Rakefile,Gemfile}", "{bin,script}/*", "{doc,guides}/**/*.md", "rakelib/*",
    "sig/**/*.rbs", "{lib,lab,odbc,examples,test,bench}/**/*.{rb,md,gemspec}", "ext/**/*.rb",
    "odbc/sig/**/*.rbs", "{ext,lab/ext,odbc/ext,test}/**/*.{c,h}"].freeze
  # The benches write their results; no editor wraps them.
  GENERATED = ["bench/results/**/*"].freeze
  FENCE = /\A\s*```/
  TABLE = /\A\s*\|/
  ADDRESS = /\]\([^)]*\)|\]: \S+|https?:\/\/\S+/
  private_constant :FILES, :GENERATED, :FENCE, :TABLE, :ADDRESS

  class << self
    # @param root [String] the working tree
    # @return [Array<String>] a message for each line that is too wide
    def complaints(root = ".")
      exempt = GENERATED.flat_map { |pattern| Dir.glob(pattern, base: root) }
      files = FILES.flat_map { |pattern| Dir.glob(pattern, base: root) }.uniq.sort - exempt
      files.select { |file| File.file?(File.join(root, file)) }.flat_map do |file|
        too_wide(File.read(File.join(root, file), encoding: "UTF-8"), markdown: file.end_with?(".md"))
          .map { |number, width| "#{file}:#{number}: #{width} columns (#{MOST} at most)" }
      end
    end

    # @param text [String] a file
    # @return [Array<Array(Integer, Integer)>] numbers of lines, and their widths
    def too_wide(text, markdown: false)
      text.each_line(chomp: true).with_index(1).reject { |line, _| line.length <= MOST }
        .then { |lines| markdown ? lines & prose(text) : lines }
        .map { |line, number| [number, line.length] }
    end

    private

    # The lines of a Markdown text, with their numbers, to which the limit applies.
    def prose(text)
      fenced = false
      text.each_line(chomp: true).with_index(1).reject do |line, _|
        fence = line.match?(FENCE)
        fenced ^= fence
        fenced || fence || line.match?(TABLE) || line.gsub(ADDRESS, "").length <= MOST
      end
    end
  end
end
