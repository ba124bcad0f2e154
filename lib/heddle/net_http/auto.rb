# frozen_string_literal: true

# For RUBYOPT="-rheddle/net_http/auto": Net::HTTP is made fast when a program loads it, and programs that never do pay nothing.
#
# Requires of net/http are noticed by a module in front of Kernel#require, which takes itself out of the way afterwards.
if defined?(Net::HTTP)
  require "heddle/net_http"
else
  module Heddle
    # @api private Notices that net/http is loaded.
    module NetHTTPAuto
      private def require(path)
        super.tap do
          if !Heddle::NetHTTPAuto.done && (path == "net/http" || path == "net/https" || path.to_s.end_with?("/net/http.rb")) && defined?(::Net::HTTP::Get)
            Heddle::NetHTTPAuto.done = true
            Heddle::NetHTTPAuto.send(:remove_method, :require)
            super("heddle/net_http")
          end
        end
      end

      class << self
        attr_accessor :done
      end
    end
    Object.prepend(NetHTTPAuto)
  end
end
