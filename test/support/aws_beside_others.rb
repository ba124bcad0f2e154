# frozen_string_literal: true

require "net/http"

# aws-sdk-core prepends a method to Net::HTTPGenericRequest#supply_default_content_type that calls super, in the
# requests of all libraries. net-http has had no such method since 0.7. So with aws-sdk-core loaded, other libraries'
# requests with a body and no content type fail, with Ruby's own Net::HTTP too. An empty method stands in for the
# missing one.
unless Net::HTTPGenericRequest.private_method_defined?(:supply_default_content_type)
  class Net::HTTPGenericRequest
    private

    def supply_default_content_type
    end
  end
end
