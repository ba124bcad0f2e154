# frozen_string_literal: true

require "yard"

# Tells YARD the class of a variable in our C code. YARD learns the class from an assignment in a file that it read
# before, or guesses it from the name. Many of our variables are parameters of functions that another file calls with
# the class.
class ClassesInC
  DEFINED = /\b(\w+) = rb_(?:define_(?:class|module)_under\((\w+), "(\w+)"|const_get\((\w+), rb_intern\("(\w+)"\))/
  FUNCTION = /^(?:static )?(?:void|VALUE) (\w+)\(VALUE (\w+)\)\n\{/
  MODULE = "heddle_module"

  # @param files [Array<String>]
  def initialize(files)
    @sources = files.to_h { |file| [file, File.read(file)] }
    @everywhere = {MODULE => "Heddle"}
    @in_file = Hash.new { |classes, file| classes[file] = {} }
    @sources.each { |file, text| define(file, text) }
    nil while follow_calls
  end

  # @return [String, nil] the name of the class
  def name(file, variable)
    @in_file[file][variable] || @everywhere[variable]
  end

  private

  # The names of global variables begin with the project's name.
  def define(file, text)
    text.scan(DEFINED) do |variable, outer, name, other, constant|
      outer = (outer || other == "module") ? self.name(file, outer || MODULE) : self.name(file, other)
      if outer
        (variable.start_with?("heddle_") ? @everywhere : @in_file[file])[variable] = "#{outer}::#{name || constant}"
      end
    end
  end

  # @return [Boolean] whether the class of another parameter was found
  def follow_calls
    functions = @sources.flat_map do |file, text|
      text.scan(FUNCTION).map { |name_and_parameter| [file, *name_and_parameter] }
    end
    unknown = functions.reject { |file, _, parameter| name(file, parameter) }
    unknown.count { |file, function, parameter| @in_file[file][parameter] ||= given_to(function) }.positive?
  end

  # @return [String, nil] the class that all calls pass
  def given_to(function)
    given = @sources.flat_map do |file, text|
      text.scan(/^ +#{function}\((\w+)\);/).filter_map { |variable,| name(file, variable) }
    end
    given.first if given.uniq.size == 1
  end

  class << self
    # @return [YARD::CodeObjects::NamespaceObject]
    def object(name)
      return YARD::Registry.at(name) if YARD::Registry.at(name)

      outer, _, last = name.rpartition("::")
      return YARD::CodeObjects::ModuleObject.new(:root, last) if outer.empty?

      YARD::CodeObjects::ClassObject.new(object(outer), last)
    end
  end

  # Prepended to YARD's own look-up.
  module Lookup
    def namespace_for_variable(variable)
      name = CLASSES.name(statement.file, variable)
      name ? ClassesInC.object(name) : super
    end
  end

  CLASSES = new(Dir["ext/heddle/**/*.c"].sort)
  private_constant :DEFINED, :FUNCTION, :MODULE, :CLASSES, :Lookup
  YARD::Handlers::C::Base.prepend(Lookup)
end
