# frozen_string_literal: true

begin
  require "sidekiq"
  unless Gem::Requirement.new(">= 7.3").satisfied_by?(Gem::Version.new(Sidekiq::VERSION))
    raise LoadError, "heddle/sidekiq needs sidekiq >= 7.3, and found #{Sidekiq::VERSION}: update the gem sidekiq"
  end
rescue LoadError => error
  raise unless error.path == "sidekiq"

  raise LoadError, "heddle/sidekiq needs the gem sidekiq (>= 7.3): add it to the Gemfile"
end
require "heddle"
require_relative "sidekiq/settings"

module Heddle
  # Runs the jobs of a Sidekiq capsule on fibers, hundreds at once in one thread, by Sidekiq's own engine.
  #
  #   require "heddle/sidekiq"
  #
  #   Sidekiq.configure_server do |config|
  #     config.heddle fibers: 500                          # the default capsule
  #     config.capsule("mail") { |capsule| capsule.heddle fibers: 200 }
  #   end
  #
  # It also gives jobs a deadline, in capsules with fibers and with threads: <tt>sidekiq_options deadline: 30</tt>. When
  # the 30 seconds are over, each wait of +perform+ fails with {DeadlineExceeded}, and Sidekiq retries the job by its
  # usual rules. With <tt>inherit_deadline: true</tt>, a job that is pushed within a deadline has at most what is left
  # of that. A line in a job class keeps its jobs within a {Limit}, in all processes together:
  # <tt>heddle_limit "api.example", concurrent: 20, per_second: 50</tt>.
  #
  # Needs Sidekiq 7.3 or later.
  module SidekiqSupport
    ::Sidekiq::Job::ClassMethods.include(JobLimits)
    ::Sidekiq::Config.include(Settings::OfConfig)
    ::Sidekiq::Config.prepend(Settings::OfSubTasks)
    ::Sidekiq::Capsule.prepend(Settings::OfCapsule)
    Settings.add_deadlines(::Sidekiq.default_configuration)
    if defined?(::ActiveSupport) && ::ActiveSupport.respond_to?(:on_load)
      ::ActiveSupport.on_load(:active_job) { prepend(Jobs::WithinCallbacks) }
    end
  end
end
