# frozen_string_literal: true

require "rbs"
require "yard"
require_relative "classes_in_c"
require_relative "documentation_links"

# Writes API pages by YARD from the comments in lib/ and ext/, and lists the methods without a page.
class Documentation
  # YARD knows only our classes, and warns when a foreign class includes one of our modules.
  module OtherPeoplesClasses
    def process
      super unless statement[0].source.start_with?("::")
    end
  end
  private_constant :OtherPeoplesClasses
  YARD::Handlers::Ruby::MixinHandler.prepend(OtherPeoplesClasses)

  # The methods of a private module are public methods of the classes that include it.
  YARD::Parser::SourceParser.after_parse_list do
    YARD::Registry.all(:class).flat_map(&:instance_mixins).grep(YARD::CodeObjects::ModuleObject).each do |mixin|
      mixin.visibility = :public unless mixin.has_tag?(:api)
    end
  end

  FOLDER = "doc/api"
  private_constant :FOLDER

  # Writes the pages. A warning ends the process.
  #
  # @return [void]
  def build
    YARD::CLI::Yardoc.run("--fail-on-warning", "--no-cache", "--no-stats")
    DocumentationLinks.new(FOLDER).relink
  end

  # @return [Array<String>] the public methods and classes without a comment, and methods of sig/ that YARD does not see
  def gaps
    (undocumented + unseen).uniq.sort
  end

  private

  # Returns the objects that .yardopts shows.
  def undocumented
    shown = YARD::CLI::Stats.new.tap { |stats| stats.parse_arguments("--quiet") }.all_objects
    bare = shown.select { |object| %i[class method].include?(object.type) && object.docstring.blank? }
    bare.select { |object| ours?(object) }.map(&:path)
  end

  def ours?(object)
    object.path.start_with?("Heddle") && !object.path.start_with?("Heddle::RubyFixes", "Heddle::Resolver")
  end

  def unseen
    Dir["{,odbc/}sig/**/*.rbs"].flat_map do |file|
      RBS::Parser.parse_signature(File.read(file)).last.flat_map { |declaration| unseen_in(declaration, []) }
    end
  end

  def unseen_in(declaration, outer)
    return [] if !declaration.respond_to?(:members) || declaration.is_a?(RBS::AST::Declarations::Interface)

    path = [*outer, declaration.name.to_s]
    declaration.members.flat_map do |member|
      case member
      when RBS::AST::Members::MethodDefinition then unseen_method(path, member.name, member.kind)
      when RBS::AST::Members::Attribute then unseen_method(path, member.name, member.kind)
      else unseen_in(member, path)
      end
    end
  end

  def shown?(object)
    [object, *namespaces(object)].all? do |one|
      one.visibility == :public && !one.tag(:api)&.text.to_s.start_with?("private")
    end
  end

  def namespaces(object)
    object.namespace.root? ? [] : [object.namespace, *namespaces(object.namespace)]
  end

  # Ruby's own documentation describes `initialize` and a Struct's methods.
  def unseen_method(path, name, kind)
    name = "#{(kind == :singleton) ? "." : "#"}#{name}"
    namespace = YARD::Registry.at(path.join("::")) or return [path.join("::") + name]
    found = YARD::Registry.resolve(namespace, name, true)
    return [] if name == "#initialize" || (found && !found.docstring.blank? && shown?(found))

    [path.join("::") + name]
  end
end
