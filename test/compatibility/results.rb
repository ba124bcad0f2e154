# frozen_string_literal: true

require "etc"
require "json"
require "time"

module Compatibility
  # What was found on one Ruby, kept as data: results/4.0.json.
  class Results
    FOLDER = File.expand_path("results", __dir__)

    # @return [Array<Results>] of all Rubies, the newest first
    def self.all
      Dir.children(FOLDER).map { |name| new(File.basename(name, ".json")) }
        .sort_by { |results| Gem::Version.new(results.ruby) }.reverse
    end

    # @return [String] such as "4.0"
    attr_reader :ruby

    # @param ruby [String] such as "4.0"
    def initialize(ruby)
      @ruby = ruby
      @data = File.exist?(path) ? JSON.parse(File.read(path)) : {}
    end

    # @return [String, nil] such as "4.0.5"
    def ruby_version = @data["ruby"]

    # @return [String] what it was measured on
    def machine = @data.fetch("machine")

    # @return [Array<String>] days
    def dates = libraries.values.map { |found| found.fetch("date") }.uniq.sort

    # @return [Hash{String => Hash}] what was found, by the library's name
    def libraries = @data.fetch("libraries", {})

    # @param name [String]
    # @return [Finding, nil] nil if the library was not measured
    def [](name) = libraries[name]&.then { |found| Finding.new(found) }

    # Keeps what was found on this Ruby and this machine, beside what is known of other libraries.
    def add(found)
      today = Time.now.utc.strftime("%F")
      found = found.transform_values { |finding| {"date" => today, **finding} }
      @data = {"ruby" => RUBY_VERSION, "machine" => this_machine,
               "libraries" => libraries.merge(found).sort.to_h}
      Dir.mkdir(FOLDER) unless Dir.exist?(FOLDER)
      File.write(path, "#{JSON.pretty_generate(@data)}\n")
    end

    # Forgets libraries that are no longer described.
    def keep(names)
      libraries.select! { |name, _| names.include?(name) }
    end

    private

    def path = File.join(FOLDER, "#{@ruby}.json")

    def this_machine
      system = Etc.uname
      "#{system[:sysname]} #{system[:release][/\A\d+\.\d+/]}, #{system[:machine]}, #{Etc.nprocessors} processors"
    end
  end

  # What was found of one library on one Ruby.
  class Finding
    # Ten tasks may take so many times as long as one.
    AT_ONCE = 2.5
    # Seconds.
    CANCEL = 0.05
    FAULTS = %w[silent stalled dripping].freeze
    private_constant :AT_ONCE, :CANCEL, :FAULTS

    def initialize(found)
      @found = found
    end

    # @return [String, nil] of the library; nil if it could not be loaded
    def version = @found["version"]

    # @return [Hash{String => Array<String>}] the connection's states after an interruption, in the words of
    #   Examination#state_of, by the question
    def afterwards = @found.fetch("afterwards", {})

    # @param questions [Array<Symbol>] those that were asked
    # @return [Hash{Symbol => String}] what is not as it should be: for each question, what happened
    def faults(questions)
      said = questions.to_h { |question| [question, send(question, @found[question.to_s])] }
      wrong = afterwards.select { |_, states| states.include?("wrong") }.keys
      said[:afterwards] = "after #{wrong.join(" and ")}: the answer to another request" if wrong.any?
      said[:ended] = @found["ended"] if @found["ended"]
      said.compact
    end

    # @param question [Symbol]
    # @return [Numeric, nil] seconds by which a deadline or a cancel was late; nil if it did not end the request
    def late(question)
      return unless %i[tasks threads cancel].include?(question)

      seconds = @found[question.to_s]
      seconds = seconds.is_a?(Hash) ? seconds.values : [seconds]
      return unless seconds.all? { |after| after.is_a?(Numeric) && after < Examination::LIMIT }

      seconds.max - ((question == :cancel) ? 0 : Examination::DEADLINE)
    end

    # @param library [Library]
    # @return [Hash{Symbol => String}] faults for which the library gives no reason
    def doubts(library)
      faults(library.questions).reject { |question, _| library.reasons.key?(question) || library.reasons.key?(:any) }
    end

    private

    def at_once(found)
      one, ten = found.values_at("one", "ten") if found.is_a?(Hash)
      return problem(found) unless ten

      "one at a time" if ten > AT_ONCE * one
    end

    def tasks(found) = deadlines(found)

    def threads(found) = deadlines(found)

    def deadlines(found)
      return problem(found) unless found.is_a?(Hash) && found.any? && !found.key?("error")

      late = found.reject { |_, after| after.is_a?(Numeric) && in_time?(after) }
      said = late.map { |fault, after| "#{fault}: #{after.is_a?(Numeric) ? "#{after.round(2)} s" : after}" }
      said.join(", ") if late.any?
    end

    def in_time?(after) = (after - Examination::DEADLINE).abs <= Examination::TOLERANCE

    def cancel(found)
      return problem(found) unless found.is_a?(Numeric)

      "#{found.round(2)} s" if found > CANCEL
    end

    def problem(found)
      return "not answered" unless found

      found.is_a?(Hash) ? found.fetch("error") : found
    end
  end
end
