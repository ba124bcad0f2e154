# frozen_string_literal: true

# For RUBYOPT="-rheddle/net_http/auto": Net::HTTP is made fast when a program loads it, and programs that never do pay
# nothing.
#
# A module that is prepended to Object notices when net/http is loaded, and then removes its own `require`.
if defined?(Net::HTTP)
  require "heddle/net_http"
else
  module Heddle
    # Notices that net/http is loaded.
    #
    # @api private
    module NetHTTPAuto
      private def require(path)
        super.tap do
          if !Heddle::NetHTTPAuto.done && Heddle::NetHTTPAuto.loads_it?(path) && defined?(::Net::HTTP::Get)
            Heddle::NetHTTPAuto.done = true
            Heddle::NetHTTPAuto.send(:remove_method, :require)
            super("heddle/net_http")
          end
        end
      end

      class << self
        attr_accessor :done

        def loads_it?(path) = path == "net/http" || path == "net/https" || path.to_s.end_with?("/net/http.rb")
      end
    end
    Object.prepend(NetHTTPAuto)
  end
end
