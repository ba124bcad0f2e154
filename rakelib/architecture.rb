# frozen_string_literal: true

require "tsort"

# The layers of the C code, which are the folders of ext/heddle, and the calls allowed between them. Only the same
# layer, and layers above it, may include a layer's headers. The compiler refuses a call without a declaration, so
# includes show all calls. The files of a layer do not call each other in circles.
class Architecture
  # From the bottom up; layers of one row do not include each other. "" is ext/heddle itself.
  ROWS = [
    ["", "wire/http", "wire/memcached", "wire/mysql", "wire/postgresql"],
    ["os"], ["cancel"], ["loop"], ["scope"], ["task"], ["sync", "resolver"], ["scheduler"], ["insight"], ["stream"],
    ["net_http", "memcached", "db", "simulation"],
    ["db/mysql", "db/postgresql", "db/sqlite"]
  ].freeze
  # Tables of functions by which a layer calls layers above it, with the layer that has the struct. Each is a way up
  # that includes do not show, so there are few, each for a reason that its header gives.
  TABLES = {
    "scope_exit" => "cancel", "owner_functions" => "loop", "turn_watcher" => "loop", "simulated_connects" => "os",
    "resource_kind" => "sync", "db_operations" => "db"
  }.freeze
  GROUND = "ext/heddle"
  # A function that other files can call, at its definition.
  FUNCTION = /^(?!static\b)[A-Za-z][\w *]*[ *](\w+)\([^;{}]*\)\n\{/
  STRUCT = /^struct (\w+) \{(.*?)^\};/m
  TABLE = /^(?:static )?(?:const )?struct (\w+) \w+ = \{/
  NO_CODE = %r{//.*$|"(?:\\.|[^"\\])*"|/\*(?:[^*]|\*(?!/))*\*/}

  Include = Struct.new(:file, :line, :layer, :included, :target)

  # @param root [String] the folder that holds the layers
  def initialize(root)
    @root = root
    @texts = {}
  end

  # @return [Array<String>] one line for each include that goes up or sideways, for each folder that is not a layer, for
  #   each table of functions that is not in {TABLES}, for Ruby's headers in wire/, and for each circle of files
  def violations
    strangers = includes.flat_map { |include| [include.layer, include.target] }.uniq - ROWS.flatten
    unlisted = strangers.map { |layer| "#{layer}/ has no place in #{self.class}::ROWS" }
    unlisted + upward + ruby_in_wire + tables + circular
  end

  # @return [String] the layers, the highest first, each with the layers that it uses
  def picture
    layers = ROWS.reverse.flatten
    width = layers.map { |layer| name(layer).size }.max
    layers.map do |layer|
      "#{name(layer).ljust(width)}  #{uses(layer).map { |used| name(used) }.join(", ")}".rstrip
    end.join("\n")
  end

  private

  def upward
    includes.reject { |include| allowed?(include) }.map do |include|
      "#{include.file}:#{include.line} includes #{include.included}: " \
        "#{name(include.layer)} may not know #{name(include.target)}"
    end
  end

  def tables
    found = files("c").flat_map do |file|
      text(file).scan(TABLE).filter_map do |name,|
        layer = structs_of_functions[name]
        [file, name, layer] if layer && layer != folder(file)
      end
    end
    unknown = found.reject { |_, name, layer| TABLES[name] == layer }
    past = TABLES.keys - found.map { |_, name| name }
    unknown.map { |file, name, layer| "#{file}: by its struct #{name}, #{name(layer)} calls a layer above it" } +
      past.map { |name| "#{name} is a way up no more: take it from #{self.class}::TABLES" }
  end

  # @return [Hash{String => String}] the layer of each struct of a header that has pointers to functions
  def structs_of_functions
    @structs_of_functions ||= files("h").flat_map do |file|
      text(file).scan(STRUCT).filter_map { |name, body| [name, folder(file)] if body.include?("(*") }
    end.to_h
  end

  def ruby_in_wire
    files("{c,h}").grep(%r{\Awire/}).select { |file| text(file).match?(/#\s*include\s*<ruby/) }
      .map { |file| "#{file} includes Ruby's headers: test/fuzz runs wire/ without Ruby" }
  end

  def text(file)
    @texts[file] ||= File.read(File.join(@root, file)).gsub(NO_CODE, "")
  end

  def circular
    files("c").group_by { |file| folder(file) }.each_value.flat_map do |files|
      circles_among(files).map { |circle| "#{circle.sort.join(", ")} call each other in a circle" }
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
    include.layer == include.target || (row(include.target) || 0) < (row(include.layer) || ROWS.size)
  end

  def row(layer)
    ROWS.index { |layers| layers.include?(layer) }
  end

  def name(layer)
    layer.empty? ? GROUND : layer
  end

  def uses(layer)
    ROWS.flatten.reverse & includes.filter_map do |include|
      include.target if include.layer == layer && include.target != layer
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
