# frozen_string_literal: true

module Heddle
  # What Ruby prints of an error that ends a program. For tasks, `print_report` in ext/heddle/task/task_end.c prints it.
  #
  # @api private
  module FullMessage
    # Without a locale, `full_message` may join paths and a message whose encodings do not fit each other. What is left
    # then are bytes.
    #
    # @param error [Exception]
    # @return [String] ends with a line feed
    def self.[](error)
      error.full_message(highlight: false)
    rescue Encoding::CompatibilityError
      ["#{error.class}: ", error.message, *error.backtrace&.flat_map { |line| ["\n\tfrom ", line] }, "\n"].map(&:b).join
    end
  end
  private_constant :FullMessage
end
