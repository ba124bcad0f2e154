# frozen_string_literal: true

module Heddle
  # What is shipped for libraries that hold fibers by identity, loaded only where the library is: when heddle is loaded,
  # and, for a library that comes later, when the first loop starts.
  #
  # @api private
  module Integrations
    def self.load
      return if @active_record || !defined?(::ActiveSupport)

      @active_record = true
      require_relative "active_record"
    end
  end
  private_constant :Integrations
end
