# frozen_string_literal: true

require "test_helper"
require "heddle"

# sig/ has all that Heddle offers its users, and nothing else.
class SignaturesTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)

  # Modules and methods that are internal. In Ruby a comment marks them, see #internal?; these are from C.
  INTERNAL = %w[EventCount Run SocketGuard DB::MySQL DB::MySQL::Driver DB::Driver DB::StatementCache
    DB::Connection.holder DB::Connection.watch DB::Connection.watched? DB::Connection#plain?
    DB::Connection#run_statement DB::PostgreSQL::Protocol
    DB::PostgreSQL::Columns DB::PostgreSQL::CopyOut DB::PostgreSQL::CopyIn.of DB::PostgreSQL::CopyIn#finish
    DB::PostgreSQL::Prepared NetHTTPAuto Simulation::Core
    .keep_deadlines .refuse_late .deadline_of_call .scoped? .unlimited_shield .background_thread .settle_thread
    .hold_signals Memcached.key_fits? Stream#tls Task#enlist Task#interrupt Task#start Task#started? Task#withdraw
    Task.interrupt_at_hang_up Task.prepare Scheduler.retire_if .forks
    Metrics.read Scheduler.root_fiber_begin Scheduler.root_fiber_end Scheduler.end_child
    ResourcePool#take_back DB::Pool#take_back Scheduler.discard_parents Scheduler.open Task.withdrawals Scheduler.equip
    ConnectFilter.in_force ConnectFilter.nested ConnectFilter.keep ConnectFilter.within ConnectFilter.process
    ConnectFilter.process= ConnectFilter.time_over? Pools Semaphore#holders ResourcePool#holders DB::Pool#holders
    DB::Connection#running Task#blocker FiberPool#use Insight.add Insight.add_details Insight.give_way Insight.listen
    Insight.listens? Insight.loop_number Insight.measured Insight.names_in_flight Insight.record= Insight.running
    Insight.serve Insight.stop_listening].freeze

  def setup
    require "rbs"
    %w[doctor timeout net_http neverblock blocking_operations active_record executor limit
      memcached db/postgresql db/sqlite rack/deadline deadline_header puma sidekiq active_job
      simulation opentelemetry prometheus insight/folder].each { |name| require "heddle/#{name}" }
  end

  def test_every_public_method_has_a_signature
    assert_empty offered.flat_map { |mod| signed?(mod) ? unsigned_methods(mod) : [mod.name] }
  end

  def test_every_signature_has_a_method
    strangers = offered.select { |mod| signed?(mod) }.flat_map do |mod|
      instance = own(builder.build_instance(type(mod)), mod)
        .reject { |name| mod.method_defined?(name) || mod.private_method_defined?(name) }
      singleton = own(builder.build_singleton(type(mod)), mod).reject { |name| mod.respond_to?(name, true) }
      instance.map { |name| "#{mod}##{name}" } + singleton.map { |name| "#{mod}.#{name}" }
    end
    assert_empty strangers
    names = environment.class_decls.keys.map { |name| name.to_s.delete_prefix("::") }.grep(/\AHeddle/)
    # They need mysql2, sqlite3, ActiveRecord, good_job and Rails.
    elsewhere = %w[Heddle::MySQL2 Heddle::SQLite3 Heddle::ActiveRecordSupport::SharedConnection
      Heddle::ActiveRecordSupport::UncommittedRow Heddle::GoodJobSupport Heddle::Rails Heddle::Rails::Railtie]
    assert_empty names - offered.map(&:name) - elsewhere
  end

  # The existing keywords, and as many arguments.
  def test_arguments
    wrong = offered.select { |mod| signed?(mod) }.flat_map do |mod|
      definition = builder.build_instance(type(mod))
      in_ruby = own(definition, mod).select do |name|
        mod.method_defined?(name, false) && mod.instance_method(name).source_location
      end
      unfit = in_ruby.reject do |name|
        parameters = mod.instance_method(name).parameters
        definition.methods[name].method_types.any? { |kind| fits?(kind.type, parameters) }
      end
      unfit.map { |name| "#{mod}##{name}" }
    end
    assert_empty wrong
  end

  private

  def fits?(function, parameters)
    kinds = parameters.group_by(&:first).transform_values { |list| list.map(&:last) }
    keywords = [*kinds[:key], *kinds[:keyreq]].sort
    signed = (function.required_keywords.keys + function.optional_keywords.keys).sort
    most = [*kinds[:req], *kinds[:opt]].size
    positionals = function.required_positionals.size + function.optional_positionals.size +
      function.trailing_positionals.size
    (kinds[:keyrest] || function.rest_keywords || keywords == signed) &&
      (kinds[:rest] || function.rest_positionals || most == positionals)
  end

  def offered
    @offered ||= [Heddle].tap do |found|
      found.each { |mod| found.concat(constants_of(mod).grep(Module).select { |inner| ours?(inner) } - found) }
    end
  end

  # A file that autoload loads may make its constant private.
  def constants_of(mod)
    mod.constants(false).each { |name| mod.const_get(name) }
    mod.constants(false).map { |name| mod.const_get(name) }
  end

  # Not Heddle::Lab, which the tests load: it is a gem of its own.
  def ours?(mod)
    mod.name&.start_with?("Heddle::") &&
      !mod.name.start_with?("Heddle::RubyFixes", "Heddle::Resolver", "Heddle::Lab") &&
      !INTERNAL.include?(mod.name.delete_prefix("Heddle::")) && !internal?(*Object.const_source_location(mod.name))
  end

  # Ruby documents the hooks of a scheduler, and the methods of a Struct.
  def unsigned_methods(mod)
    return [] if mod <= Struct

    instance = builder.build_instance(type(mod)).methods
    singleton = builder.build_singleton(type(mod)).methods
    missing = methods_of(mod).reject { |method| instance.key?(method.name) }.map { |method| "#{mod}##{method.name}" }
    missing += mod.singleton_methods(false).map { |name| mod.method(name) }
      .reject { |method| singleton.key?(method.name) || internal?(*method.source_location) }
      .map { |method| "#{mod}.#{method.name}" }
    missing.reject { |name| INTERNAL.include?(name.delete_prefix("Heddle").delete_prefix("::")) }
  end

  # With those of its own modules.
  def methods_of(mod)
    ancestors = mod.ancestors
      .select { |ancestor| ancestor == mod || (ancestor.name.nil? || ancestor.name.start_with?("Heddle")) }
    names = ancestors.flat_map { |ancestor| ancestor.public_instance_methods(false) }.uniq
    names -= %i[inspect to_s hash eql? == <=>]
    methods = names.map { |name| mod.instance_method(name) }.reject { |method| internal?(*method.source_location) }
    if mod == Heddle::Scheduler
      methods.select { |method| method.name.to_s.match?(/\A(?:backend|statistics|close|closed\?|tasks)\z/) }
    else
      methods
    end
  end

  # Whether the comment above says "@api private".
  def internal?(file = nil, line = nil)
    return false unless file.to_s.end_with?(".rb")

    @lines ||= Hash.new { |lines, path| lines[path] = File.readlines(path) }
    @lines[file][0...line - 1].reverse.take_while { |text| text.lstrip.start_with?("#") }.any? do |text|
      text.include?("@api private")
    end
  end

  def signed?(mod) = environment.class_decls.key?(type(mod))

  # Its own signature, not an ancestor's.
  def own(definition, mod)
    definition.methods
      .select { |_, method| method.implemented_in == type(mod) && method.accessibility == :public }.keys - [:new]
  end

  def type(mod)
    *outer, name = mod.name.split("::")
    RBS::TypeName.new(name: name.to_sym, namespace: RBS::Namespace.new(path: outer.map(&:to_sym), absolute: true))
  end

  # It takes seconds to make.
  def builder = @@builder ||= RBS::DefinitionBuilder.new(env: environment) # rubocop:disable Style/ClassVars

  def environment
    @@environment ||= begin # rubocop:disable Style/ClassVars
      loader = RBS::EnvironmentLoader.new
      loader.add(path: Pathname(File.join(ROOT, "sig")))
      %w[timeout bigdecimal date socket].each { |library| loader.add(library: library, version: nil) }
      RBS::Environment.from_loader(loader).resolve_type_names
    end
  end
end
