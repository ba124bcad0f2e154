# frozen_string_literal: true

require "tsort"

# The rooms of the C code, which are the folders of ext/heddle, and the calls allowed between them. Only the same room,
# and rooms above it, may include a room's headers. The compiler refuses a call without a declaration, so includes show
# all calls. The files of a room do not call each other in circles.
class Architecture
  # From the bottom up; rooms of one row do not include each other. "" is ext/heddle itself.
  ROWS = [
    [""], ["os"], ["cancel"], ["loop"], ["scope"], ["task"], ["sync", "names"], ["scheduler"], ["stream", "wire"],
    ["net_http", "db"],
    ["memcached", "mysql", "postgresql", "sqlite", "simulation"]
  ].freeze
  # Rooms that still have circles. A room that has lost its own is found, and leaves this list.
  CIRCLES = %w[net_http].freeze
  # Tables of functions by which a room calls rooms above it, with the room that has the struct. Each is a way up that
  # includes do not show, so there are few, each for a reason that its header gives.
  TABLES = {
    "scope_exit" => "cancel", "owner_functions" => "loop", "simulated_connects" => "os", "resource_kind" => "sync",
    "db_operations" => "db"
  }.freeze
  GROUND = "ext/heddle"
  # A function that other files can call, at its definition.
  FUNCTION = /^(?!static\b)[A-Za-z][\w *]*[ *](\w+)\([^;{}]*\)\n\{/
  STRUCT = /^struct (\w+) \{(.*?)^\};/m
  TABLE = /^(?:static )?(?:const )?struct (\w+) \w+ = \{/
  NO_CODE = %r{//.*$|"(?:\\.|[^"\\])*"|/\*(?:[^*]|\*(?!/))*\*/}

  Include = Struct.new(:file, :line, :room, :included, :target)

  # @param root [String] the folder that holds the rooms
  def initialize(root)
    @root = root
    @texts = {}
  end

  # @return [Array<String>] one line for each include that goes up or sideways, for each folder that is not a room, for
  #   each table of functions that is not in {TABLES}, and for each circle of files
  def violations
    strangers = includes.flat_map { |include| [include.room, include.target] }.uniq - ROWS.flatten
    strangers.map { |room| "#{room}/ has no place in #{self.class}::ROWS" } + upward + tables + circular
  end

  # @return [String] the rooms, the highest first, each with the rooms that it uses
  def picture
    rooms = ROWS.reverse.flatten
    width = rooms.map { |room| name(room).size }.max
    rooms.map do |room|
      "#{name(room).ljust(width)}  #{uses(room).map { |used| name(used) }.join(", ")}".rstrip
    end.join("\n")
  end

  private

  def upward
    includes.reject { |include| allowed?(include) }.map do |include|
      "#{include.file}:#{include.line} includes #{include.included}: " \
        "#{name(include.room)} may not know #{name(include.target)}"
    end
  end

  def tables
    found = files("c").flat_map do |file|
      text(file).scan(TABLE).filter_map do |name,|
        room = structs_of_functions[name]
        [file, name, room] if room && room != folder(file)
      end
    end
    unknown = found.reject { |_, name, room| TABLES[name] == room }
    past = TABLES.keys - found.map { |_, name| name }
    unknown.map { |file, name, room| "#{file}: by its struct #{name}, #{name(room)} calls a room above it" } +
      past.map { |name| "#{name} is a way up no more: take it from #{self.class}::TABLES" }
  end

  # @return [Hash{String => String}] the room of each struct of a header that has pointers to functions
  def structs_of_functions
    @structs_of_functions ||= files("h").flat_map do |file|
      text(file).scan(STRUCT).filter_map { |name, body| [name, folder(file)] if body.include?("(*") }
    end.to_h
  end

  def text(file)
    @texts[file] ||= File.read(File.join(@root, file)).gsub(NO_CODE, "")
  end

  def circular
    files("c").group_by { |file| folder(file) }.flat_map do |room, files|
      circles = circles_among(files)
      if CIRCLES.include?(room)
        circles.empty? ? ["#{room}/ has no circle any more: take it from #{self.class}::CIRCLES"] : []
      else
        circles.map { |circle| "#{circle.sort.join(", ")} call each other in a circle" }
      end
    end
  end

  # @return [Array<Array<String>>]
  def circles_among(files)
    texts = files.to_h { |file| [file, text(file)] }
    functions = texts.flat_map { |file, text| text.scan(FUNCTION).map { |name,| [name, file] } }.to_h
    calls = texts.to_h do |file, text|
      [file, text.scan(/(?<![.>\w])\w+/).uniq.filter_map { |name| functions[name] }.uniq - [file]]
    end
    TSort.strongly_connected_components(calls.method(:each_key), ->(file, &block) { calls[file].each(&block) })
      .reject(&:one?)
  end

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
    @includes ||= files("{c,h}").flat_map do |file|
      File.foreach(File.join(@root, file)).with_index(1).filter_map do |text, line|
        included = text[/\A\s*#\s*include\s+"([^"]+)"/, 1] or next
        Include.new(file, line, folder(file), included, folder(included))
      end
    end
  end

  def files(endings)
    Dir.glob("**/*.#{endings}", base: @root).sort
  end

  def folder(file)
    (File.dirname(file) == ".") ? "" : File.dirname(file)
  end
end
