# frozen_string_literal: true

# The rooms of the C code, which are the folders of ext/heddle, and the calls allowed between them. Only the same room,
# and rooms above it, may include a room's headers. The compiler refuses a call without a declaration, so includes show
# all calls.
class Architecture
  # From the bottom up; rooms of one row do not include each other. "" is ext/heddle itself.
  ROWS = [
    [""], ["os"], ["loop"], ["scope"], ["task"], ["sync", "names"], ["scheduler"], ["stream", "wire"],
    ["net_http", "db"],
    ["memcached", "mysql", "postgresql", "sqlite", "simulation"]
  ].freeze
  # heddle.c loads all rooms.
  EXCEPT = %w[heddle.c].freeze
  GROUND = "ext/heddle"

  Include = Struct.new(:file, :line, :room, :included, :target)

  # @param root [String] the folder that holds the rooms
  def initialize(root)
    @root = root
  end

  # @return [Array<String>] one line for each include that goes up or sideways, and for each folder that is not a room
  def violations
    strangers = includes.flat_map { |include| [include.room, include.target] }.uniq - ROWS.flatten
    strangers.map { |room| "#{room}/ has no place in #{self.class}::ROWS" } +
      includes.reject { |include| allowed?(include) }.map do |include|
        "#{include.file}:#{include.line} includes #{include.included}: " \
          "#{name(include.room)} may not know #{name(include.target)}"
      end
  end

  # @return [String] the rooms, the highest first, each with the rooms that it uses
  def picture
    width = ROWS.flatten.map { |room| name(room).size }.max
    ROWS.reverse.flatten.map do |room|
      "#{name(room).ljust(width)}  #{uses(room).map { |used| name(used) }.join(", ")}".rstrip
    end.join("\n")
  end

  private

  def allowed?(include)
    include.room == include.target || (row(include.target) || 0) < (row(include.room) || ROWS.size)
  end

  def row(room)
    ROWS.index { |rooms| rooms.include?(room) }
  end

  def name(room)
    room.empty? ? GROUND : room
  end

  def uses(room)
    ROWS.flatten.reverse & includes.filter_map do |include|
      include.target if include.room == room && include.target != room
    end
  end

  def includes
    @includes ||= Dir.glob("**/*.{c,h}", base: @root).sort.reject { |file| EXCEPT.include?(file) }.flat_map do |file|
      File.foreach(File.join(@root, file)).with_index(1).filter_map do |text, line|
        included = text[/\A\s*#\s*include\s+"([^"]+)"/, 1] or next
        Include.new(file, line, folder(file), included, folder(included))
      end
    end
  end

  def folder(file)
    (File.dirname(file) == ".") ? "" : File.dirname(file)
  end
end
