# frozen_string_literal: true

require_relative "program"

module Compatibility
  module Peers
    # A broker of MQTT.
    class Mosquitto < Program
      runs "mosquitto"

      private

      def arguments = ["-c", file("mosquitto.conf", <<~CONF)]
        listener #{port} #{host}
        allow_anonymous true
        persistence false
        #{"user root" if root?}
      CONF
    end
  end
end
