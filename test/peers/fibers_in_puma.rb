# frozen_string_literal: true

# Puma's pool is the plugin's, with as many requests at once as it would have threads; also in the processes that tests
# start.
begin
  require "heddle/puma"
rescue LoadError
  return # a process with a bundle of its own
end

this = "-r#{__FILE__}"
ENV["RUBYOPT"] = "#{ENV["RUBYOPT"]} #{this}" unless ENV["RUBYOPT"].to_s.include?(this)

pool = Class.new(Heddle::PumaSupport.const_get(:TaskPool)) do
  def initialize(name, options = {}, **rest, &block)
    ActiveSupport::IsolatedExecutionState.isolation_level = :fiber if defined?(ActiveSupport::IsolatedExecutionState)
    own = {min_threads: 0, heddle_threads: 1}
    super(name, Hash.new { |_, key| options[key] }.update(own), **rest, &block)
    @min = Integer(options[:min_threads])
  end
end
Puma.send(:remove_const, :ThreadPool)
Puma.const_set(:ThreadPool, pool)
