# frozen_string_literal: true

module Heddle
  # Class methods of job classes: limits that all processes share. Jobs of ActiveJob have them with
  # <tt>require "heddle/active_job"</tt>, those of Sidekiq with <tt>require "heddle/sidekiq"</tt>.
  module JobLimits
    # From now on jobs of this class and its subclasses run within a {Limit}, and wait for a permit of it. Of several
    # limits, those with +concurrent+ are taken first, all in the order of their names: jobs of two classes never wait
    # for each other's permits. A second line with the same name replaces the first, also that of a superclass. The wait
    # is part of the job: its deadline binds it.
    #
    #   heddle_limit "api.example", concurrent: 20, per_second: 50
    #
    # @param name [String]
    # @param options [Hash] those of {Limit#initialize}
    # @return [void]
    # @raise [TypeError, ArgumentError] for a value that it cannot use
    # @raise [LoadError] without the gem redis-client
    def heddle_limit(name, **options)
      require_relative "../limit"
      limit = Limit.new(name, **options)
      # A job that needed two places of one limit could wait for a place that another such job holds, for ever.
      others = heddle_limits.reject { |other| other.name == name }
      @heddle_limits = [*others, limit].sort_by { |own| [own.concurrent ? 0 : 1, own.name] }
      nil
    end

    # @api private
    # @return [Array<Limit>] in the order in which a job takes them
    def heddle_limits
      @heddle_limits || (superclass.respond_to?(:heddle_limits) ? superclass.heddle_limits : [])
    end

    # Calls the block within the limits of a job's class.
    #
    # @api private
    def self.within(job_class, &block)
      return yield unless job_class.respond_to?(:heddle_limits)

      job_class.heddle_limits.reverse.reduce(block) { |inner, limit| -> { limit.acquire(&inner) } }.call
    end
  end
end
