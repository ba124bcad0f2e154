# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # A message of the server other than an error, such as RAISE NOTICE sends.
      #
      # @!attribute [r] severity
      #   @return [String] "NOTICE", "WARNING", "INFO", "LOG" or "DEBUG"
      # @!attribute [r] sql_state
      #   @return [String] five characters
      # @!attribute [r] message
      #   @return [String] with control characters as \\xNN
      # @!attribute [r] detail
      #   @return [String, nil]
      # @!attribute [r] hint
      #   @return [String, nil]
      # @!attribute [r] context
      #   @return [String, nil] where the server was: the functions that called
      Notice = Struct.new(:severity, :sql_state, :message, :detail, :hint, :context) do
        # @api private
        # @param fields [Hash{String => String}] by their letters in the protocol
        def self.of(fields)
          new(fields["V"] || fields["S"] || "", fields["C"] || "", fields["M"] || "", *fields.values_at("D", "H", "W"))
        end
      end
    end
  end
end
