# frozen_string_literal: true

module Heddle
  class CLI
    # The colours of a terminal, in the lines of {Insight::Text}: tasks that run, and those that could.
    class Colours
      CODES = {"running" => "1;31", "ready" => "33", "queued" => "33"}.freeze
      # The state, in a line of a table or a tree.
      STATE = /\A[ │├└─]*(?:task )?\d+ +(?:".*" )?\K(?:running|ready|queued)(?= )/
      private_constant :CODES, :STATE

      # @param io [IO]
      # @return [Boolean] whether it is a terminal that knows escape sequences
      def self.terminal?(io) = io.tty? && ENV["TERM"] != "dumb"

      # @param io [IO] where the lines go
      def initialize(io)
        @on = Colours.terminal?(io) && ENV["NO_COLOR"].to_s.empty?
      end

      # @param line [String]
      # @return [String]
      def paint(line) = @on ? line.sub(STATE) { |state| "\e[#{CODES.fetch(state)}m#{state}\e[m" } : line
    end
    private_constant :Colours
  end
end
