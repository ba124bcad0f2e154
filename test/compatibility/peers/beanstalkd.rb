# frozen_string_literal: true

require_relative "program"

module Compatibility
  module Peers
    class Beanstalkd < Program
      runs "beanstalkd"

      private

      def arguments = ["-l", host, "-p", port.to_s]
    end
  end
end
