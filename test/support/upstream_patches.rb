# frozen_string_literal: true

require "digest"
require "fileutils"
require "open3"
require "tempfile"

# A change of doc/upstream for one of Ruby's own repositories. The tree keeps it as a script for ed(1), which has the
# new lines alone: so it holds nothing that others wrote. Beside a checkout of the commit it becomes the patch to send.
class UpstreamPatch
  FOLDER = File.expand_path("../../doc/upstream", __dir__)

  # @param path [String] of the changed file, in that repository
  # @param blob [String] how git names the file's text before the change
  # @param commands [Array<Array>] from the last line of the file to the first: the numbers of the lines that make way
  #   (an empty range stands behind a line), and the lines that come
  Change = Struct.new(:path, :blob, :commands) do
    # @param text [String] of the file before
    # @return [String] and after
    def apply(text)
      bytes = text.b
      found = Digest::SHA1.hexdigest("blob #{bytes.bytesize}\0#{bytes}")
      raise ArgumentError, "#{path} is #{found}, the change is for #{blob}" unless found.start_with?(blob)

      lines = text.lines
      commands.each { |range, new| lines[range] = new }
      lines.join
    end
  end

  attr_reader :name, :repository, :commit, :changes

  def self.all = Dir["#{FOLDER}/*.ed"].sort.map { |path| new(File.basename(path, ".ed"), File.read(path)) }

  # @param script [String] first `# REPOSITORY COMMIT`; then for each file `*** PATH BLOB` and what `diff -e` prints
  def initialize(name, script)
    @name = name
    @repository, @commit = script.match(/\A# (\S+) (\h{40})$/)&.captures || refuse("the first line names no commit")
    @changes = script.lines.drop(1).slice_before(/\A\*\*\* /).map { |lines| change(lines) }
  end

  # @param source [String] the folder of a checkout of the commit
  # @return [String] the patch, as git prints it
  def unified(source)
    changes.map { |change|
      path = File.join(source, change.path)
      Tempfile.create("upstream") do |file|
        file.write(change.apply(File.read(path, encoding: "UTF-8")))
        file.flush
        label = ["--label", "a/#{change.path}", "--label", "b/#{change.path}"]
        Open3.capture2("diff", "-U3", "--show-c-function", *label, path, file.path).first
      end
    }.join
  end

  private

  def change(lines)
    path, blob = lines.shift.match(/\A\*\*\* (\S+) (\h{10,40})$/)&.captures || refuse("no file before #{lines.first}")
    commands = []
    commands << command(lines) until lines.empty?
    starts = commands.map { |range, _| range.begin }
    refuse("#{path}: not from the last line to the first") unless starts == starts.sort.reverse.uniq
    Change.new(path, blob, commands)
  end

  def command(lines)
    first, last, letter = lines.shift.match(/\A(\d+)(?:,(\d+))?([acd])$/)&.captures || refuse("not a command of ed")
    first = Integer(first)
    last = Integer(last || first)
    refuse("#{last} is before #{first}") if last < first
    range = (letter == "a") ? (first...first) : ((first - 1)..(last - 1))
    return [range, []] if letter == "d"

    ended = lines.index(".\n") || refuse("lines without an end")
    [range, lines.shift(ended + 1)[0...-1]]
  end

  def refuse(reason) = raise(ArgumentError, "#{name}: #{reason}")
end
