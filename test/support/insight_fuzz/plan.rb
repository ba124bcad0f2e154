# frozen_string_literal: true

module InsightFuzz
  # What takes part in the run of a seed, and how its process ends.
  class Plan
    PARTS = {
      prometheus: 0.4, toggles: 0.4, forks: 0.6, insight: 0.9, signals: 0.5, gc: 0.5, kills: 0.4, traces: 0.6,
      watches: 0.7, ractors: 0.2, stress: 0.2
    }.freeze
    ENDINGS = [nil, nil, :exit, :exit!, :abort, :TERM, :KILL, :exit].freeze
    # On Ruby 3.1 children that are forked beside other Ractors may hang, also without Heddle, and GC has crashed beside
    # them.
    UNSOUND = %i[ractors].freeze
    private_constant :PARTS, :ENDINGS, :UNSOUND

    # @return [Random] for the rest of the run
    attr_reader :random
    # @return [Symbol, nil] nil if it works until its end
    attr_reader :ending

    def initialize(seed)
      @random = Random.new(seed)
      chosen = PARTS.select { |_, chance| @random.rand < chance }.keys
      with, without = %w[WITH WITHOUT].map { |name| ENV[name]&.split(",")&.map(&:to_sym) }
      @parts = (with || chosen) - (without || ((RUBY_VERSION < "3.3") ? UNSOUND : []))
      @ending = ENDINGS.sample(random: @random)
    end

    def include?(part) = @parts.include?(part)

    # Whether its process may end so.
    def allows?(status)
      case @ending
      when :TERM, :KILL then status.termsig == Signal.list.fetch(@ending.to_s)
      when :abort then status.exitstatus == 1
      else status.success?
      end
    end

    def to_s = "#{@parts.join(", ")}#{", ends by #{@ending}" if @ending}"
  end
end
