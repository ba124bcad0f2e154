# frozen_string_literal: true

module Heddle
  module Insight
    # What a process did at one moment: Hashes, with the keys of the lines of an answer.
    #
    # @!attribute process [Hash] `pid`, `program`, …
    # @!attribute loops [Array<Hash>]
    # @!attribute tasks [Array<Hash>]
    # @!attribute ruby [Hash, nil] nil if Ruby code did not answer
    # @!attribute reason [String, nil] why it did not
    #
    # @api private
    Snapshot = Struct.new(:process, :loops, :tasks, :ruby, :reason) do
      # @return [Hash] for JSON
      def to_h
        {"process" => process, "loops" => loops, "tasks" => tasks, "ruby" => ruby, "reason" => reason}
      end

      # @return [Hash{Integer => Hash}] the tasks by number
      def by_number = @by_number ||= tasks.to_h { |task| [task["task"], task] }
    end
  end
end
